"""The report of a tuning, from a constructed result."""

from dataclasses import replace
from itertools import pairwise

import pytest

from strategist.cli import tune
from strategist.contract.evidence import PolicyEvidence
from strategist.contract.measurement import Outcome
from strategist.contract.request import Request
from strategist.contract.study import TrialResult
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.report.tuning import SECTIONS, tuning_report
from strategist.search.tuning_result import Errors, TuningResult
from tests.contract.samples import MEASUREMENT
from tests.report.samples import OTHER, PLAN, rendered

OK = replace(MEASUREMENT, step_seconds=95.0, tokens_per_second=12_758.0)
BEST = TrialResult(number=1, proposed_by="search", plan=PLAN, measurement=OK)
RESULT = TuningResult(
    study="studies/one", request=Request(model="32b", gpus="8x24GB"),
    trials=(
        BEST,
        TrialResult(
            number=2, proposed_by="card:BATCH-001/larger-when-memory-was-left", plan=OTHER,
            measurement=replace(OK, outcome=Outcome.INFRASTRUCTURE),
        ),
        TrialResult(number=3, proposed_by="search", plan=OTHER, measurement=None),
    ),
    best=BEST, ended="",
    calibration_before=NEUTRAL, calibration_after=Calibration(communication=1.53, overhead_seconds=0.42, trials=1),
    errors_before=Errors(trials=1, step_seconds=0.94, peak_memory=0.17),
    errors_after=Errors(trials=1, step_seconds=0.3, peak_memory=0.061),
    errors_left_out=Errors(trials=0, step_seconds=None, peak_memory=None),
    evidence=(PolicyEvidence(card="TP-001", policy="always", confirmed=3, contradicted=1),),
)  # fmt: skip


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_of_trials_keeps_settings_and_figures(width: int) -> None:
    text = rendered(tuning_report(RESULT, ("trials",)), width)
    places = [text.index("1*"), text.index("\n   2 "), text.index("\n   3 "), None]
    first, second, third = (text[start:end] for start, end in pairwise(places))
    for figure in ("dp_shard", "ok", "47.5 s", "95 s", "12,758", "33 B", "search"):
        assert figure in first
    assert "infrastructure" in second
    assert "BATCH-001" in second
    assert "lost" in third


def test_a_wider_step_interval_is_shown() -> None:
    wider = replace(RESULT, calibration_after=Calibration(step_range=(0.5, 4.0), trials=3))
    assert "x0.6 to x1.8 -> x0.5 to x4" in rendered(tuning_report(wider, ("calibration",)), 120)


def test_the_report_shows_calibration_and_evidence() -> None:
    text = " ".join(rendered(tuning_report(RESULT, tuple(SECTIONS)), 120).split())
    assert "before calibration 1 94% 17%" in text
    assert "left out of the fit 0 - -" in text
    assert "communication x1 -> x1.53" in text
    assert "overhead 0 us -> 420 ms" in text
    assert "TP-001/always: pairs of trials for it: 3, against it: 1" in text


def test_a_tuning_without_trials_or_evidence_shows_a_message() -> None:
    text = rendered(tuning_report(replace(RESULT, best=None, evidence=()), tuple(SECTIONS)), 120)
    assert "No trial ended well" in text
    assert "nothing was confirmed or contradicted" in text


def test_the_report_starts_with_the_best_trial_and_fits_a_screen() -> None:
    assert tuple(SECTIONS) == tune.SECTIONS
    many = replace(RESULT, trials=(*RESULT.trials, *(replace(BEST, number=number) for number in range(4, 60))))
    lines = rendered(tuning_report(many), 80).splitlines()
    assert lines[0].startswith("Best: trial 1, 12,758 tokens/s, step 95 s, peak memory 33 B")
    assert len(lines) <= 40
    assert "54 more trials: --show trials" in "".join(lines)
    assert "  strategist run studies/one/best-plan.json" in lines
    assert "Cards and the evidence" not in "".join(lines)


def test_a_report_without_a_best_trial_counts_outcomes() -> None:
    lost = rendered(tuning_report(replace(RESULT, best=None, trials=RESULT.trials[1:])), 80)
    assert lost.startswith("No best trial: 1 infrastructure, 1 lost.")
    assert "best-plan.json" not in lost
