"""Limits of a tuning."""

import time
from dataclasses import replace

import pytest

from strategist.contract.measurement import Outcome
from strategist.contract.study import TrialState
from strategist.errors import InputError
from strategist.ledger.rows import AttemptRow, TrialRow
from strategist.tuner.limits import Limits, device_hours


def row(number: int, *walls: float | None) -> TrialRow:
    attempts = tuple(
        AttemptRow(
            trial=number, attempt=place, owner="me", started=100.0, ended=None if wall is None else 100.0 + wall,
            outcome=None if wall is None else Outcome.OK, measurement_json=None, late_json=None,
        )
        for place, wall in enumerate(walls, start=1)
    )  # fmt: skip
    return TrialRow(
        number=number, key="k", plan_json="{}", proposed_by="search", state=TrialState.RUNNING, attempt=len(walls), owner="me",
        lease_until=None, attempts=attempts,
    )  # fmt: skip


def test_device_hours_count_finished_attempts_only() -> None:
    assert device_hours([row(1, 1800.0, 900.0), row(2, None)], 8) == pytest.approx(8 * 0.75)


def test_limits_are_exhausted_when_device_hours_are_used_up() -> None:
    limits = Limits(trials=9, device_hours=5.0)
    assert limits.exhausted([row(1, 1800.0)], 8) == ""
    assert limits.exhausted([row(1, 2250.0)], 8) == "5 of 5 device hours are used up"


def test_limits_are_exhausted_when_the_minutes_are_over() -> None:
    limits = Limits(trials=9, minutes=2)
    assert limits.exhausted([], 8) == ""
    assert replace(limits, began=time.monotonic() - 121).exhausted([], 8) == "2 minutes are over"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"trials": 0}, "--trials 0: must be at least 1"),
        ({"minutes": 0.0}, "--minutes 0: must be above 0"),
        ({"device_hours": -1.0}, "--device-hours -1: must be above 0"),
        ({"least_gain": 1.0}, "--least-gain 1: must lie from 0"),
        ({"sampler": "simplex"}, "--sampler simplex: is not a sampler; choose one of surrogate"),
        ({"sampler": "tpe", "least_gain": 0.01}, "--least-gain 0.01: needs a sampler with predictions"),
    ],
)
def test_wrong_limits_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        Limits(**{"trials": 3, **wrong})
