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
"""Outcomes with a measured step time."""

TELLING = (*RAN, Outcome.OOM, Outcome.TIMEOUT, Outcome.NAN, Outcome.CRASH)
"""Outcomes that say something about the plan, not about the machine or the user."""
