"""Our own trials as a sweep for replayed searches."""

from dataclasses import replace

import pytest

from strategist.accuracy.sweep import Sweep, priced_without, sweeps_by_name
from strategist.accuracy.trial_cases import cases_of
from strategist.contract.measurement import Kind, Outcome
from strategist.contract.replay import CLOSE
from strategist.cost.calibration import NEUTRAL
from strategist.paths import data_dir
from strategist.profiles import history
from strategist.profiles.history import Record
from strategist.tuner.replay_benchmark import search_run

LAYOUTS = data_dir("profiles") / "measurements" / "tiny-4xcpu-layouts.jsonl"
RECORDS = history.read(LAYOUTS).records


@pytest.fixture(scope="module")
def sweep() -> Sweep:
    cases = cases_of(RECORDS, LAYOUTS.stem)
    ((_, own),) = sweeps_by_name(cases).items()
    return priced_without(cases, own, NEUTRAL)


def test_the_sweep_has_every_measured_layout(sweep: Sweep) -> None:
    assert len(sweep.cases) == len(RECORDS) >= 60
    assert min(sweep.step_seconds) == min(record.measurement.step_seconds for record in RECORDS)


@pytest.mark.parametrize("seed", range(3))
def test_the_surrogate_needs_a_fifth_of_the_trials_of_random_and_tpe(sweep: Sweep, seed: int) -> None:
    ours = search_run(sweep, "surrogate", 0)
    assert ours.regret[-1] <= CLOSE
    assert all(search_run(sweep, sampler, seed).trials >= 5 * ours.trials for sampler in ("random", "tpe"))


def with_outcome(record: Record, outcome: Outcome, kind: Kind = Kind.REAL) -> Record:
    return replace(record, measurement=replace(record.measurement, outcome=outcome, kind=kind))


def test_only_real_trials_that_ran_or_were_out_of_memory_are_cases() -> None:
    ran, oom, lost, shadow = (
        with_outcome(RECORDS[0], Outcome.OK), with_outcome(RECORDS[1], Outcome.OOM), with_outcome(RECORDS[2], Outcome.LOST),
        with_outcome(RECORDS[3], Outcome.OK, Kind.SHADOW),
    )  # fmt: skip
    found = cases_of([ran, oom, lost, shadow], "ours")
    assert [(case.row.line, case.oom, case.step_seconds is None) for case in found] == [(1, False, False), (2, True, True)]
