"""Action orders of pipeline schedules equal those of the installed torch, rank by rank."""

from typing import Any

import pytest

from strategist.contract.knobs import CHOICES, LOOPED, ROUND_BASED, V_SHAPED, least_micro_batches
from strategist.cost.pipeline_actions import Action, Kind, Pipeline, actions

CLASSES = {
    "gpipe": "ScheduleGPipe",
    "1f1b": "Schedule1F1B",
    "looped_bfs": "ScheduleLoopedBFS",
    "interleaved_1f1b": "ScheduleInterleaved1F1B",
    "interleaved_zero_bubble": "ScheduleInterleavedZeroBubble",
    "zbv_zero_bubble": "ScheduleZBVZeroBubble",
    "dual_pipe_v": "ScheduleDualPipeV",
}


def legal(schedule: str) -> list[Pipeline]:
    """Small pipelines that the schedule can run, with odd ranks, few micro-batches and uneven rounds among them."""
    virtual = (2, 3) if schedule in LOOPED else (2,) if schedule in V_SHAPED else (1,)
    found = [Pipeline(schedule, pp, v, m) for pp in (2, 3, 4, 8) for v in virtual for m in (1, 2, 3, 4, 6, 8, 9, 10, 16, 24)]
    found = [p for p in found if p.micro_batches >= least_micro_batches(schedule, p.pp)]
    return [p for p in found if schedule not in ROUND_BASED or p.micro_batches % (p.micro_batches // p.pp) == 0]


class Recorder:
    """A pipeline stage that records the actions a schedule calls, without communication."""

    def __init__(self, rank: int, index: int, pipeline: Pipeline) -> None:
        self.stage_index, self.num_stages = index, pipeline.stages
        self.group_rank, self.group_size = rank, pipeline.pp
        self.is_first, self.is_last = index == 0, index == pipeline.stages - 1
        self.submod = None
        self.recorded: list[Action] = []

    def get_fwd_recv_ops(self, _: int) -> list[Any]:
        return []

    get_bwd_recv_ops = get_fwd_send_ops = get_bwd_send_ops = get_fwd_recv_ops

    def forward_one_chunk(self, micro_batch: int, *_: object, **__: object) -> None:
        self.recorded.append(Action(Kind.FORWARD, self.stage_index, micro_batch))

    def backward_one_chunk(self, micro_batch: int, **_: object) -> None:
        self.recorded.append(Action(Kind.BACKWARD, self.stage_index, micro_batch))

    def perform_reduce_grad(self, _: int) -> None:
        pass


def torch_order(pipeline: Pipeline, rank: int) -> list[Action]:
    """The actions that torch runs: for single-stage schedules those of their step, otherwise those of their runtime's plan."""
    from torch.distributed.pipelining import schedules

    cls = getattr(schedules, CLASSES[pipeline.schedule])
    if pipeline.virtual_stages == 1:
        stage = Recorder(rank, rank, pipeline)
        schedule = cls(stage, pipeline.micro_batches)
        schedule._initialize_stage = lambda *_: None
        arguments = [()] * pipeline.micro_batches, [{}] * pipeline.micro_batches
        schedule._step_microbatches(*arguments)
        return stage.recorded
    own = [index for index in range(pipeline.stages) if pipeline.rank_of(index) == rank]
    schedule = cls([Recorder(rank, index, pipeline) for index in own], pipeline.micro_batches)
    assert all(schedule.stage_index_to_group_rank[index] == pipeline.rank_of(index) for index in range(pipeline.stages))
    order = [part for action in schedule.pipeline_order_with_comms[rank] for part in action.sub_actions or (action,)]
    return [Action(Kind(a.computation_type.value), a.stage_index, a.microbatch_index) for a in order if a.is_compute_op]


@pytest.mark.torch
@pytest.mark.timeout(240)
@pytest.mark.parametrize("schedule", CHOICES["pp_schedule"])
def test_action_order_equals_torchs(schedule: str) -> None:
    pipelines = legal(schedule)
    assert len(pipelines) > 8
    for pipeline in pipelines:
        orders = actions(pipeline)
        for rank in range(pipeline.pp):
            assert orders[rank] == torch_order(pipeline, rank), (pipeline, rank)


@pytest.mark.parametrize("schedule", CHOICES["pp_schedule"])
def test_every_micro_batch_runs_once_on_every_stage(schedule: str) -> None:
    for pipeline in legal(schedule):
        for rank, order in enumerate(actions(pipeline)):
            assert len(set(order)) == len(order)
            own = {s for s in range(pipeline.stages) if pipeline.rank_of(s) == rank}
            each = {(s, i) for s in own for i in range(pipeline.micro_batches)}
            done = {kind: {(a.stage, a.micro_batch) for a in order if a.kind is kind} for kind in Kind}
            assert done[Kind.FORWARD] == each
            assert done[Kind.BACKWARD] | done[Kind.BACKWARD_INPUT] == each
            assert not done[Kind.BACKWARD] & done[Kind.BACKWARD_INPUT]
            assert done[Kind.BACKWARD_INPUT] == done[Kind.BACKWARD_WEIGHT]
