"""Limits: when a tuning ends, and which sampler proposes its trials."""

import time
from collections.abc import Iterable
from dataclasses import field

from strategist.errors import InputError, not_among
from strategist.frozen import frozen
from strategist.ledger.rows import TrialRow
from strategist.search.settings import SAMPLERS


@frozen
class Limits:
    """Limits of a tuning, and the sampler that proposes its trials.

    trials: number of trials of the study after which the tuning ends.
    confirm: longer runs of each of the best two, alternating, if they are too close; 0 accepts the first measurement.
    minutes: no trial starts after this time of this tuning.
    device_hours: no trial starts after the study's trials took this much.
    least_gain: the tuning ends if no candidate is expected to improve the best (or the dominated region of the front) by this
        share.
    sampler: proposes trials; one of ``SAMPLERS``.
    seed: seed of the sampler.
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
            raise not_among(f"--sampler {self.sampler}", self.sampler, SAMPLERS, "is not a sampler")
        if self.least_gain and self.sampler != "surrogate":
            law = "needs a sampler with predictions, which is surrogate"
            raise InputError(f"--least-gain {self.least_gain:g}", law, "leave one of the two out")

    @property
    def minutes_passed(self) -> float:
        """Minutes since the tuning began."""
        return (time.monotonic() - self.began) / 60

    def exhausted(self, rows: Iterable[TrialRow], devices: int) -> str:
        """The limit of time or device hours that is used up, in words; empty if a trial may start."""
        if self.minutes is not None and self.minutes_passed >= self.minutes:
            return f"{self.minutes:g} minutes are over"
        spent = device_hours(rows, devices)
        if self.device_hours is not None and spent >= self.device_hours:
            return f"{spent:.3g} of {self.device_hours:g} device hours are used up"
        return ""


def device_hours(rows: Iterable[TrialRow], devices: int) -> float:
    """Device hours of all attempts that have ended."""
    seconds = sum(attempt.ended - attempt.started for row in rows for attempt in row.attempts if attempt.ended)
    return devices * seconds / 3600
