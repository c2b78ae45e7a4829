"""A large study is opened and searched at bounded cost."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import quantiles

import pytest
from chaos import Chaos
from search.plans import measured, plan

from strategist.contract import codec
from strategist.contract.goals import THROUGHPUT_ONLY
from strategist.ledger.ledger import Ledger
from strategist.search.study import MAX_SURROGATE_TRIALS, Tried, informative_trials
from tuner.grown import CONSIDERED, finished, plans

TESTS = Path(__file__).parents[1]


@pytest.mark.full
@pytest.mark.chaos("The store", "a large study: opening, and proposing the next trial")
def test_a_large_study_is_opened_and_searched(tmp_path: Path, chaos: Chaos) -> None:
    trials, proposals, chance = chaos.size(60, 10_000), chaos.size(2, 200), chaos.random()
    considered = min(CONSIDERED, trials)
    made = plans(trials + considered // 2)
    chance.shuffle(made)
    with Ledger.open(tmp_path / "study", create=True) as ledger:
        rows = [finished(own, chance.lognormvariate(0.2, 0.1)) for own in made[:trials]]
        # ten thousand commits would take minutes
        ledger._database.write(lambda db: [ledger._import_trial(db, row) for row in rows])
    near = made[trials - considered // 2 :]
    (tmp_path / "considered.json").write_text(json.dumps([codec.dumps(own) for own in near]))
    command = [sys.executable, "-m", "tuner.grown", str(tmp_path / "study"), str(tmp_path / "considered.json"), str(proposals)]
    path = os.pathsep.join((str(TESTS), *sys.path))
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert (found["read"], len(found["asked"])) == (trials, proposals)
    slowest = quantiles(found["asked"], n=100, method="inclusive")[-1]
    chaos.found(f"{trials:,} finished trials: opened in {found['opened']:.1f} s of CPU time (5 s allowed)")
    chaos.found(
        f"99 % of {proposals} proposals among {len(near):,} candidates within {slowest * 1000:.0f} ms of CPU time (250 ms allowed)"
    )
    chaos.found(f"{found['peak_memory_bytes'] / 1e6:.0f} MB (400 MB allowed)")


def test_the_surrogate_uses_the_best_the_latest_and_running_trials() -> None:
    running, *others = [Tried(plan=plan(1.0, dp_shard=size)) for size in range(1, 3 * MAX_SURROGATE_TRIALS + 1)]
    assert informative_trials(others[:MAX_SURROGATE_TRIALS], THROUGHPUT_ONLY) == others[:MAX_SURROGATE_TRIALS]
    ended = [replace(item, measurement=measured(item.plan, step_seconds=1.0 + place)) for place, item in enumerate(others)]
    chosen = informative_trials([running, *ended], THROUGHPUT_ONLY)
    half = MAX_SURROGATE_TRIALS // 2
    best = sorted(ended, key=lambda item: item.measurement.step_seconds)[:half]
    assert (len(chosen), chosen[0]) == (MAX_SURROGATE_TRIALS, running)
    assert all(item in chosen for item in best)
    assert chosen[-half + 1 :] == [item for item in ended if item not in best][-half + 1 :]
