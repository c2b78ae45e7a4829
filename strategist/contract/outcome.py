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

EVIDENCE_OUTCOMES = (*RAN, Outcome.OOM, Outcome.TIMEOUT, Outcome.NAN, Outcome.CRASH)
"""Outcomes that are evidence about the plan. The others have causes outside it, such as the machine or the user."""
