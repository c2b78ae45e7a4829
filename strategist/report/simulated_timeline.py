"""The simulated step of a plan as consecutive spans on each rank."""

from collections.abc import Iterator

from strategist.contract.report import Span, Timeline
from strategist.cost.simulated_steps import TAIL_PARTS, Simulated
from strategist.report.trace import WORDS


def timeline(simulated: Simulated, rounds: int = 1) -> Timeline:
    """The simulated step, or the last of several ``rounds``, with the time after each rank's last action."""
    pipeline = simulated.timeline.graph.pipeline
    return Timeline(
        schedule=pipeline.schedule if pipeline.pp > 1 else "",
        micro_batches=pipeline.micro_batches,
        step_seconds=float(simulated.timeline.step_seconds[0]),
        spans=tuple(_spans(simulated)),
        rounds=rounds,
        bubble_seconds=tuple(simulated.timeline.bubble_seconds[0].tolist()),
    )


def _spans(simulated: Simulated) -> Iterator[Span]:
    end_of_rank = [0.0] * simulated.timeline.graph.pipeline.pp
    for rank, action, start, end in simulated.timeline.actions():
        if end == start:  # a stage that only fills up a round of ranks
            continue
        yield Span(
            rank=rank, work=WORDS[action.kind], start_seconds=start, end_seconds=end, stage=action.stage,
            micro_batch=action.micro_batch,
        )  # fmt: skip
        end_of_rank[rank] = end
    for rank, start_seconds in enumerate(end_of_rank):
        for part in TAIL_PARTS:
            if (seconds := float(simulated.tails[part][0, rank])) > 0:
                yield Span(rank=rank, work=part, start_seconds=start_seconds, end_seconds=start_seconds + seconds)
                start_seconds += seconds
