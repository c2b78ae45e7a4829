"""Seconds to simulate the finalists of a ranking on one core: python benchmarks/simulation.py"""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import sys
from statistics import median
from time import perf_counter

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
        begin = perf_counter()
        for pipeline, candidates in groups:
            timeline = simulate(pipeline, costs(pipeline, candidates))
            assert (timeline.bubble_seconds >= 0).all()
            assert (timeline.in_flight().peak_bytes > 0).all()
        times.append(perf_counter() - begin)
    return median(times)


def main() -> None:
    """Of each schedule alone, of all mixed, and of pipelines that are all different."""
    print(f"Python {sys.version.split()[0]}, NumPy {np.__version__}, one core, median of {RUNS}; pp 16, 64 micro-batches")
    for schedule, stages in SCHEDULES.items():
        print(f"{schedule}: {FINALISTS} finalists in {seconds([(Pipeline(schedule, 16, stages, 64), FINALISTS)]):.3f} s")
    mixed = [(Pipeline(schedule, 16, stages, count), 1) for schedule, stages in SCHEDULES.items() for count in (32, 64, 64, 64)]
    print(f"all schedules mixed: {len(mixed)} finalists in {seconds(mixed):.3f} s")
    different = [(Pipeline("interleaved_1f1b", 16, 2, 16 * (1 + number % 4)), 1) for number in range(4)]
    different += [(Pipeline("looped_bfs", 16, 2, 33 + number), 1) for number in range(FINALISTS - len(different))]
    print(f"no two alike: {len(different)} finalists in {seconds(different):.3f} s")


if __name__ == "__main__":
    main()
