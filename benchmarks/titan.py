"""Simulated memory against TorchTitan's published tables: python benchmarks/titan.py [ROW ...] [--whole] [--fused-norm]

Each row as a plan, eager and in bf16: a simulation sees nothing of a compiler or of float8, so that figures of rows that had them
(marked) are of something else. What the columns do not say is what TorchTitan did in December 2024: selective recomputation keeps
every second matmul, FSDP2 frees the root's parameters after the forward pass, and the RMS norm is several kernels with results in
fp32 between them, where torch now has one; ``--fused-norm`` simulates that one.
"""

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from time import perf_counter
from unittest.mock import patch

from strategist_runtime.simulate import cuda_kernel_replacements
from strategist_runtime.simulate.rank import simulate

from strategist.accuracy.case import Case, case_of
from strategist.accuracy.row import read_rows
from strategist.cards.deck import load_deck
from strategist.contract.knobs import Candidate
from strategist.contract.options import Options
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.simulation import SimulatedRank
from strategist.paths import data_dir
from strategist.planning import planner
from strategist.profiles.situation import Situation
from strategist.units import GIB

TABLE = "torchtitan_2024_2025.csv"


def main() -> None:
    """A line for each row, of the simulated rank with the largest reserved memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", help="row ids as in the table; none for all")
    parser.add_argument("--whole", action="store_true", help="trace every layer and micro-batch")
    parser.add_argument("--fused-norm", action="store_true", help="with torch's RMS norm of one kernel")
    parser.add_argument("--expandable", action="store_true", help="with expandable segments")
    options = parser.parse_args()
    print(
        f"{'row':10} {'published':>10} {'allocated':>10} {'reserved':>10} {'ratio':>6}  GiB; ratio: simulated reserved / published"
    )
    for case in cases(options.rows):
        begin = perf_counter()
        plan = plan_of(case, expandable=options.expandable)
        found = peak_rank(plan, whole=options.whole, fused_norm=options.fused_norm)
        published, reserved = (case.peak_memory_bytes or 0.0) / GIB, (found.peak_reserved_bytes or 0) / GIB
        figures = f"{published:10.1f} {found.peak_memory_bytes / GIB:10.2f} {reserved:10.2f} {reserved / published:6.3f}"
        print(f"{case.row.row_id:10} {figures}  {marks(case)} ({perf_counter() - begin:.0f} s)", flush=True)


def peak_rank(plan: Plan, *, whole: bool = False, fused_norm: bool = False) -> SimulatedRank:
    """Of the first and the last stage the rank for which the most is reserved."""
    layout = plan.candidate.layout
    ask = partial(simulated, plan, whole=whole, fused_norm=fused_norm)
    with ProcessPoolExecutor(max_workers=1, max_tasks_per_child=1, mp_context=get_context("spawn")) as pool:
        ranks = pool.map(ask, sorted({layout.first_rank(0), layout.first_rank(layout.pp - 1)}))
        return max(ranks, key=lambda rank: rank.peak_reserved_bytes or 0)


def simulated(plan: Plan, rank: int, *, whole: bool, fused_norm: bool) -> SimulatedRank:
    """One rank; the process stays it."""
    with nullcontext() if fused_norm else patch.object(cuda_kernel_replacements, "cuda_replacements", nullcontext):
        return simulate(plan, rank, whole=whole)


def cases(rows: Sequence[str]) -> list[Case]:
    """The named rows of the table, or all of them."""
    table = read_rows(data_dir("profiles") / "measurements" / "published" / TABLE)
    return [case_of(row) for row in table if not rows or row.row_id in rows]


def plan_of(case: Case, *, expandable: bool) -> Plan:
    """The row's plan without compiler and float8."""
    knobs = replace(
        case.candidate.knobs,
        saved_operations="every_second_matmul+attention+collectives",
        compile=False,
        float8="none",
        float8_all_gather=False,
    )
    options = Options(reshard_root=True, expandable_segments=expandable)
    chosen = Candidate(layout=case.candidate.layout, knobs=knobs, options=options)
    request = Request(model=case.model.name, gpus=case.cluster.name, workload=case.workload)
    priced_situation = Situation(request=request, model=case.model, cluster=case.cluster, notes=(), digest="")
    return planner.price_candidate(priced_situation, chosen, deck=load_deck())


def marks(case: Case) -> str:
    """What the plan left out of the row."""
    dropped = {"compiled": case.candidate.knobs.compile, "float8": case.candidate.knobs.float8 != "none"}
    return ", ".join(name for name, there in dropped.items() if there) or "eager"


if __name__ == "__main__":
    main()
