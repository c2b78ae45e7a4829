"""Outcome: how a trial ended."""

from enum import StrEnum


class Outcome(StrEnum):
    OK = "ok"
    OOM = "oom"
    TIMEOUT = "timeout"
    NAN = "nan"
    CRASH = "crash"
    REFUSED = "refused"
    PRUNED = "pruned"
    BAD_MEASUREMENT = "bad_measurement"
    INFRASTRUCTURE = "infrastructure"
    LOST = "lost"
    CANCELLED = "cancelled"


RAN = (Outcome.OK, Outcome.PRUNED)
"""Outcomes that have a step's time."""

TELLING = (*RAN, Outcome.OOM, Outcome.TIMEOUT, Outcome.NAN, Outcome.CRASH)
"""Outcomes in which the plan had its chance."""
