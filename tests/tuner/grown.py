"""A large study of finished trials, created without running them. As a program: opens and reads the study, proposes trials,
and prints the cost."""

import json
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

from strategist.contract import codec
from strategist.contract.measurement import Kind, Measurement, Outcome
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.study import TrialState
from strategist.contract.workload import Workload
from strategist.ledger.ledger import Ledger
from strategist.ledger.rows import AttemptRow, TrialRow
from strategist.planning.planner import enumerated, price_candidate
from strategist.profiles.situation import Situation, situation
from strategist.search.rank import Ranking, candidate
from strategist.search.study import Tried, propose
from tuner.studies import DECK

REQUEST = Request(model="70b", gpus="256xh100", backend="native", workload=Workload(seq_len=8192, global_batch=1024))
"""A request with more than ten thousand candidates that fit."""

CONSIDERED = 1000
"""Candidates from which the next trial is chosen; half of them were tried."""


def plans(count: int) -> list[Plan]:
    """The first ``count`` plans of a large space, by prediction; all have the reasons of the first."""
    asked, ranking = enumerate_space()
    rows = [int(row) for row in ranking.order[:count]]
    assert len(rows) == count, f"the space holds {len(ranking.order)}"
    first = price_candidate(asked, candidate(ranking.columns, rows[0]), deck=DECK)
    chosen = ((candidate(ranking.columns, row), ranking.priced.estimate(row)) for row in rows)
    return [replace(first, candidate=own, estimate=estimate).identified() for own, estimate in chosen]


@cache
def enumerate_space() -> tuple[Situation, Ranking]:
    """All candidates, ranked."""
    asked = situation(REQUEST)
    return asked, enumerated(asked, deck=DECK)


def finished(plan: Plan, slowness: float) -> TrialRow:
    """A finished trial whose steps took ``slowness`` times the prediction."""
    seconds = slowness * plan.estimate.step_seconds
    measured = Measurement(
        plan_id=plan.id, kind=Kind.REAL, outcome=Outcome.OK, step_seconds=seconds, steps_measured=2, mfu=0.1,
        tokens_per_second=plan.workload.tokens_per_step / seconds, peak_memory_bytes=(int(plan.estimate.peak_memory_bytes),) * 8,
        comm_ratio=0.1, exposed_comm_ratio=0.1, wall_seconds=1.0,
    )  # fmt: skip
    attempt = AttemptRow(
        trial=1, attempt=1, owner="w", started=1.0, ended=2.0, outcome=Outcome.OK, measurement_json=codec.one_line(measured)
    )
    return TrialRow(
        number=1, key=plan.candidate.key, plan_json=codec.one_line(plan), proposed_by="search", state=TrialState.FINISHED,
        attempt=1, attempts=(attempt,),
    )  # fmt: skip


def measure_cost(folder: Path, considered: Path, times: int) -> dict[str, object]:
    """CPU seconds for opening the study and for each of ``times`` proposals, the number of trials read, and the peak memory."""
    begun = time.process_time()
    with Ledger.open(folder) as ledger:
        rows = ledger.trials()
    opened = time.process_time() - begun
    tried = [Tried(plan=codec.loads(Plan, row.plan_json), measurement=_measured(row)) for row in rows]
    ranked = tuple(codec.loads(Plan, text) for text in json.loads(considered.read_text()))
    asked = list[float]()
    for _ in range(times):
        begun = time.process_time()
        proposal = propose(ranked, tried)
        asked.append(time.process_time() - begun)
        assert proposal is not None
        tried.append(Tried(plan=proposal.plan))
    assert len({item.plan.candidate.key for item in tried}) == len(tried), "a candidate was proposed twice"
    return {"opened": opened, "read": len(rows), "asked": asked, "peak_memory_bytes": peak_memory_bytes()}


def peak_memory_bytes() -> int:
    """Peak memory of this program; getrusage may report that of the parent process."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(status["VmHWM"].split()[0])


def _measured(row: TrialRow) -> Measurement | None:
    return None if row.measurement_json is None else codec.loads(Measurement, row.measurement_json)


if __name__ == "__main__":
    print(json.dumps(measure_cost(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))))
