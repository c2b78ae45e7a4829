"""Simulated pipeline schedules: equal to closed forms where these exist, and invariants for any stages."""

import gc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from cost.test_pipeline_actions import legal
from strategist.contract.knobs import CHOICES, V_SHAPED
from strategist.cost.pipeline_actions import Kind, Pipeline
from strategist.cost.pipeline_simulator import MAX_GRAPHS, Graph, StageCosts, Timeline, simulate

SCHEDULES = [str(schedule) for schedule in CHOICES["pp_schedule"]]
PAIRS = [Pipeline("gpipe", 4, 1, 6), Pipeline("1f1b", 8, 1, 24), Pipeline("looped_bfs", 4, 3, 5)]
PAIRS += [Pipeline("interleaved_1f1b", 4, 2, 10), Pipeline("interleaved_1f1b", 4, 3, 16)]


def run(pipeline: Pipeline, forward: Any = 1.0, inputs: Any = 1.0, weights: Any = 1.0, hop: float = 0.0, **other: Any) -> Timeline:
    """Simulates one candidate; times and bytes are those of a rank with equal stages, or given by stage."""
    share = np.full((1, pipeline.stages), 1 / pipeline.virtual_stages)
    costs = StageCosts(
        forward=share * forward, backward_input=share * inputs, backward_weight=share * weights,
        saved_bytes=share * other.pop("kept", 1.0), hop_seconds=np.array([hop]),
        tail_seconds=other.pop("tail", np.zeros((1, pipeline.pp))), **other,
    )  # fmt: skip
    return simulate(pipeline, costs)


def idle(pipeline: Pipeline, *seconds: float) -> float:
    """Step time minus the compute time of a rank."""
    return float(run(pipeline, *seconds).step_seconds[0]) - pipeline.micro_batches * sum(seconds)


@pytest.mark.parametrize("pipeline", PAIRS, ids=str)
def test_bubble_equals_the_closed_form(pipeline: Pipeline) -> None:
    """arXiv 2104.04473, section 2.2: (pp - 1)(F + B) / v."""
    assert idle(pipeline, 1.0, 1.25, 0.75) == pytest.approx((pipeline.pp - 1) * 3.0 / pipeline.virtual_stages)


def test_interleaved_zero_bubble_equals_its_closed_form() -> None:
    """ZB1P, arXiv 2401.10241, table 1, divided by the stages per rank: (pp - 1)(F + I - W) / v."""
    assert idle(Pipeline("interleaved_zero_bubble", 4, 3, 16), 1.0, 1.25, 0.75) == pytest.approx(3 * 1.5 / 3)


@pytest.mark.parametrize(("seconds", "each"), [((1.0, 1.0, 1.0), 0.5), ((1.0, 1.25, 0.75), 0.625), ((1.0, 1.5, 0.5), 1.0)])
def test_zbv_bubble_is_the_wait_for_the_first_forward_pass(seconds: tuple[float, float, float], each: float) -> None:
    """(pp - 1) max(I, 2 (I - W)) / 2. The paper's F + I - 2 W, 0 for equal thirds (arXiv 2401.10241, table 1), counts each rank
    from its own first action, as if the next step could begin before this one ends on all ranks.
    """
    assert idle(Pipeline("zbv_zero_bubble", 4, 2, 16), *seconds) == pytest.approx(3 * each)


def test_dual_pipe_bubble_without_overlapped_forward_and_backward() -> None:
    """As ZB-V if all thirds of the work are equal; DualPipe's own formula assumes a kernel that runs both at once."""
    assert idle(Pipeline("dual_pipe_v", 4, 2, 16), 1.0, 1.0, 1.0) == pytest.approx(3 / 2)
    assert idle(Pipeline("dual_pipe_v", 8, 2, 64), 1.0, 1.5, 0.5) == pytest.approx(7 + 1.25)


@pytest.mark.parametrize(
    ("pipeline", "first", "last"),
    [
        (Pipeline("gpipe", 4, 1, 10), 10, 10),
        (Pipeline("1f1b", 4, 1, 10), 4, 1),
        (Pipeline("looped_bfs", 4, 2, 10), 10, 10),
        (Pipeline("interleaved_1f1b", 8, 2, 64), 8 + 7 / 2, 9 / 2),  # the last rank holds a round of its first stages
        (Pipeline("interleaved_1f1b", 4, 2, 10), 6, 3),  # rounds of five
        (Pipeline("interleaved_zero_bubble", 8, 2, 64), 8, 8),  # half the warm-up, and weight gradients wait
        (Pipeline("zbv_zero_bubble", 8, 2, 64), 8, 8),
        (Pipeline("dual_pipe_v", 8, 2, 64), 8.5, 8.5),
    ],
    ids=str,
)
def test_micro_batches_in_flight_by_schedule(pipeline: Pipeline, first: float, last: float) -> None:
    """arXiv 2205.05198, section 4.2.3, and the differences of torch's schedules."""
    waiting = run(pipeline, kept=7.0).in_flight()
    assert waiting.micro_batches[[0, -1]] == pytest.approx([first, last])
    assert waiting.peak_bytes[0] == pytest.approx(7.0 * waiting.micro_batches)


def test_transfers_are_exposed_in_1f1b_and_hidden_in_looped_bfs() -> None:
    """1F1B has no spare micro-batch: for each pp of them, all transfers in both directions are on the critical path."""
    slow = {"hop": 0.05, "inputs": 1.0, "weights": 1.0}
    shown = float((run(Pipeline("1f1b", 8, 1, 64), **slow).step_seconds - 71 * 3)[0]) / 0.05
    assert 2 * 7 * 64 / 8 <= shown <= 2 * 64
    hidden = float((run(Pipeline("looped_bfs", 8, 2, 64), **slow).step_seconds - 67.5 * 3)[0]) / 0.05
    assert hidden == pytest.approx(2 * 7)


def test_without_overlap_transfers_block_the_sender() -> None:
    pipeline = Pipeline("1f1b", 4, 1, 8)
    busy = run(pipeline, hop=0.5, overlaps=False).busy_seconds
    assert busy[0] == pytest.approx([8 * 3.5, 8 * 4, 8 * 4, 8 * 3.5])


def test_the_slowest_stage_determines_the_step() -> None:
    pipeline = Pipeline("1f1b", 4, 1, 64)
    even, uneven = run(pipeline), run(pipeline, forward=np.array([[1, 1, 1, 2.0]]))
    assert uneven.step_seconds - even.step_seconds == pytest.approx(64, abs=1)
    assert uneven.bubble_seconds[0].argmin() == 3


def test_gpipe_keeps_the_activations_of_all_micro_batches() -> None:
    """Each stage has its own bytes."""
    found = run(Pipeline("gpipe", 2, 1, 3), kept=np.array([[5.0, 50.0]]))
    assert found.in_flight().peak_bytes.tolist() == [[15.0, 150.0]]


def test_tail_time_follows_a_ranks_last_action() -> None:
    found = run(Pipeline("1f1b", 2, 1, 2), tail=np.array([[0.5, 9.0]]))
    assert found.step_seconds.tolist() == [7.0 + 9.0]  # the last rank ends at 7, the first at 9
    assert found.bubble_seconds.tolist() == [[16.0 - 6 - 0.5, 16.0 - 6 - 9.0]]


def test_transfers_of_a_rank_follow_one_another() -> None:
    """Passes of a second and transfers of three: the first of two ranks sends four inputs, and the second as many gradients."""
    found = run(Pipeline("gpipe", 2, 1, 4), hop=3.0)
    last_input = 1 + 4 * 3
    assert found.end[found.graph.orders[1, 3], 0] == last_input + 1
    gradients = last_input + 1 + 2 + 4 * 3  # a backward pass takes two seconds
    assert found.step_seconds.tolist() == [gradients + 2]


@st.composite
def timelines(draw: st.DrawFn) -> Timeline:
    """Timelines of two candidates with any schedule and any durations."""
    pipeline = draw(st.sampled_from([p for schedule in SCHEDULES for p in legal(schedule) if p.pp < 5]))
    numbers = st.lists(st.integers(0, 40), min_size=2 * pipeline.stages, max_size=2 * pipeline.stages)
    forward, inputs, weights, kept = (np.reshape(draw(numbers), (2, -1)) / 8 for _ in range(4))
    return simulate(
        pipeline,
        StageCosts(
            forward=forward, backward_input=inputs, backward_weight=weights, saved_bytes=kept,
            hop_seconds=np.array(draw(st.lists(st.integers(0, 8), min_size=2, max_size=2))) / 8,
            tail_seconds=np.zeros((2, pipeline.pp)), overlaps=draw(st.booleans()),
        ),
    )  # fmt: skip


@settings(max_examples=80)
@given(timelines(), st.integers(0, 1))
def test_actions_wait_for_their_inputs_and_never_overlap_on_a_rank(found: Timeline, candidate: int) -> None:
    pipeline, hop = found.graph.pipeline, float(found.costs.hop_seconds[candidate]) * found.costs.overlaps
    ended: dict[tuple[bool, int, int], float] = {}
    executed = list(found.actions(candidate))
    for _, action, _, end in executed:
        if action.kind is not Kind.BACKWARD_WEIGHT:
            ended[action.kind is Kind.FORWARD, action.stage, action.micro_batch] = end
    free = [0.0] * pipeline.pp
    for rank, action, start, end in executed:
        assert start >= free[rank]
        free[rank] = end
        forward = action.kind is Kind.FORWARD
        source = action.stage + (-1 if forward else 1)
        if action.kind is not Kind.BACKWARD_WEIGHT and 0 <= source < pipeline.stages:
            away = hop * (pipeline.rank_of(source) != rank)
            assert start >= ended[forward, source, action.micro_batch] + away
        if not forward:
            assert start >= ended[True, action.stage, action.micro_batch]
    assert found.step_seconds[candidate] == max(free)


@settings(max_examples=40)
@given(timelines(), st.integers(0, 1))
def test_busy_time_bubbles_and_saved_bytes_stay_within_their_bounds(found: Timeline, candidate: int) -> None:
    pipeline, costs = found.graph.pipeline, found.costs
    each = (costs.forward + costs.backward_input + costs.backward_weight)[candidate] * pipeline.micro_batches
    if costs.overlaps:
        assert found.busy_seconds[candidate].sum() == pytest.approx(each.sum())
    assert (found.bubble_seconds >= 0).all()
    assert found.step_seconds[candidate] >= each.max()
    waiting = found.in_flight()
    assert (waiting.peak_bytes[candidate] <= pipeline.micro_batches * costs.saved_bytes[candidate].sum() + 1e-9).all()
    assert (waiting.micro_batches <= pipeline.micro_batches).all()


def test_candidates_are_simulated_independently() -> None:
    pipeline = Pipeline(V_SHAPED[0], 3, 2, 7)
    one = np.arange(1.0, 7.0)[None]
    other = one[:, ::-1]
    shared = {"hop_seconds": np.array([0.1, 0.1]), "tail_seconds": np.zeros((2, 3)), "saved_bytes": np.concatenate([one, other])}
    both = np.concatenate([one, other])
    together = simulate(pipeline, StageCosts(forward=both, backward_input=both, backward_weight=both, **shared))
    for number, seconds in enumerate((one, other)):
        alone = {name: array[number : number + 1] for name, array in shared.items()}
        found = simulate(pipeline, StageCosts(forward=seconds, backward_input=seconds, backward_weight=seconds, **alone))
        assert found.step_seconds[0] == together.step_seconds[number]
        assert found.in_flight().peak_bytes[0].tolist() == together.in_flight().peak_bytes[number].tolist()


def test_a_process_keeps_few_pipelines_and_each_in_few_objects() -> None:
    for micro_batches in range(20, 20 + 2 * MAX_GRAPHS):
        run(Pipeline("1f1b", 2, 1, micro_batches))
    gc.collect()
    kept = [item for item in gc.get_objects() if isinstance(item, Graph)]
    assert len(kept) <= MAX_GRAPHS
    arrays = [item for graph in kept for item in gc.get_referents(graph.__dict__) if isinstance(item, np.ndarray)]
    assert 0 < len(arrays) <= 8 * len(kept)  # independent of the length of the pipeline
    assert not any(gc.is_tracked(item) for graph in kept for item in graph.level_edges)
