"""Seconds to simulate the finalists of a ranking on one core: python benchmarks/simulation.py"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

from statistics import median
from time import process_time

import numpy as np

from strategist.cost.pipeline_actions import Pipeline
from strategist.cost.pipeline_simulator import StageCosts, graph, simulate

RUNS, FINALISTS = 5, 32
SCHEDULES = {
    "gpipe": 1, "1f1b": 1, "looped_bfs": 2, "interleaved_1f1b": 2, "interleaved_zero_bubble": 2, "zbv_zero_bubble": 2,
    "dual_pipe_v": 2,
}  # fmt: skip


def costs(pipeline: Pipeline, candidates: int) -> StageCosts:
    """Uneven stages, other ones for each candidate."""
    uneven = np.random.default_rng(0).uniform(0.8, 1.2, (4, candidates, pipeline.stages))
    return StageCosts(
        forward=uneven[0], backward_input=uneven[1], backward_weight=uneven[2], saved_bytes=uneven[3],
        hop_seconds=np.full(candidates, 0.01), tail_seconds=np.zeros((candidates, pipeline.pp)),
    )  # fmt: skip


def seconds(groups: list[tuple[Pipeline, int]]) -> float:
    """Median of ``RUNS`` runs from nothing: orders, graphs, timelines, bubbles, and what waits in memory."""
    times = []
    for _ in range(RUNS):
        graph.cache_clear()
        begin = process_time()
        for pipeline, candidates in groups:
            timeline = simulate(pipeline, costs(pipeline, candidates))
            assert (timeline.bubble_seconds >= 0).all()
            assert (timeline.in_flight().peak_bytes > 0).all()
        times.append(process_time() - begin)
    return median(times)


def main() -> None:
    """Of each schedule alone, of all mixed, and of pipelines that are all different."""
    seconds_of = {schedule: seconds([(Pipeline(schedule, 16, stages, 64), FINALISTS)]) for schedule, stages in SCHEDULES.items()}
    figures = ", ".join(f"{schedule} {found:.3f} s" for schedule, found in seconds_of.items())
    print(f"{FINALISTS} equal pipelines simulated, pp 16, 64 micro-batches, median of {RUNS}: {figures}")
    mixed = [(Pipeline(schedule, 16, stages, count), 1) for schedule, stages in SCHEDULES.items() for count in (32, 64, 64, 64)]
    print(f"{len(mixed)} pipelines of all schedules simulated: {seconds(mixed):.3f} s")
    different = [(Pipeline("interleaved_1f1b", 16, 2, 16 * (1 + number % 4)), 1) for number in range(4)]
    different += [(Pipeline("looped_bfs", 16, 2, 33 + number), 1) for number in range(FINALISTS - len(different))]
    print(f"{len(different)} pipelines simulated, no two alike: {seconds(different):.3f} s")


if __name__ == "__main__":
    main()
