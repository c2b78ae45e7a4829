"""Limits: when a tuning ends, and which proposers its trials come from."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from strategist.errors import InputError, not_among
from strategist.ledger.rows import TrialRow
from strategist.search.settings import SAMPLERS


@dataclass(frozen=True, kw_only=True)
class Limits:
    """A tuning ends with so many ``trials`` of the study, or before: no trial starts after so many ``minutes`` of this tuning or
    ``device_hours`` of all the study's trials, nor where none is expected to be better than the best, or to enlarge what the front
    dominates, by the share ``least_gain``.

    Then the best two, where they are near each other, take turns in up to ``confirm`` longer runs each. ``sampler`` proposes
    trials, and ``seed`` is what it leaves to chance.
    """

    trials: int
    confirm: int = 2
    minutes: float | None = None
    device_hours: float | None = None
    least_gain: float = 0.0
    sampler: str = "surrogate"
    seed: int = 0
    began: float = field(default_factory=time.monotonic, compare=False)

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise InputError(f"--trials {self.trials}", "must be at least 1", "give a positive number")
        if self.confirm < 0:
            raise InputError(f"--confirm {self.confirm}", "must be at least 0", "0 names the best by one look at each")
        for name, value in (("--minutes", self.minutes), ("--device-hours", self.device_hours)):
            if value is not None and value <= 0:
                raise InputError(f"{name} {value:g}", "must be above 0", "leave it out where there is no such limit")
        if not 0 <= self.least_gain < 1:
            raise InputError(f"--least-gain {self.least_gain:g}", "must lie from 0 to below 1", "write e.g. 1%")
        if self.sampler not in SAMPLERS:
            raise not_among(f"--sampler {self.sampler}", self.sampler, SAMPLERS, "is no sampler")
        if self.least_gain and self.sampler != "surrogate":
            law = "needs a sampler that says what it expects, which is surrogate"
            raise InputError(f"--least-gain {self.least_gain:g}", law, "leave one of the two out")

    @property
    def minutes_passed(self) -> float:
        """Since the tuning began."""
        return (time.monotonic() - self.began) / 60

    def used_up(self, rows: Iterable[TrialRow], devices: int) -> str:
        """What of them is used up, in words; empty where a trial may start."""
        if self.minutes is not None and self.minutes_passed >= self.minutes:
            return f"{self.minutes:g} minutes are over"
        spent = device_hours(rows, devices)
        if self.device_hours is not None and spent >= self.device_hours:
            return f"{spent:.3g} of {self.device_hours:g} device hours are used up"
        return ""


def device_hours(rows: Iterable[TrialRow], devices: int) -> float:
    """What all attempts that have ended took."""
    seconds = sum(attempt.ended - attempt.started for row in rows for attempt in row.attempts if attempt.ended)
    return devices * seconds / 3600
