"""Rows of a ledger as frozen values, and the checksum that detects a damaged row."""

import hashlib
import json
from typing import Any

from strategist.contract import codec
from strategist.contract.measurement import Measurement, Outcome
from strategist.contract.plan import Plan
from strategist.contract.study import TrialState
from strategist.frozen import frozen
from strategist.ledger.database import Row

RETRIED_OUTCOMES = (Outcome.INFRASTRUCTURE, Outcome.LOST)
"""Outcomes that show nothing about the plan: the trial is queued again until it has had ``MAX_ATTEMPTS`` attempts."""

MAX_ATTEMPTS = 3

ENVELOPE = ("version", "type")
"""Keys that :mod:`strategist.contract.codec` adds to a document; a line of a history has ``version`` once."""


@frozen
class Claim:
    """The right to run a trial until its lease expires; ``attempt`` invalidates writes of the previous holder."""

    number: int
    attempt: int
    plan_json: str
    proposed_by: str = ""

    @property
    def plan(self) -> Plan:
        """The plan, decoded at each access."""
        return codec.loads(Plan, self.plan_json)


@frozen
class AttemptRow:
    """One run of a trial. ``late_json``: a measurement that arrived after the attempt was closed: evidence, never a result.

    Times are seconds since 1970 by the database's clock; ``ended`` and ``outcome`` are None while it runs.
    """

    trial: int
    attempt: int
    owner: str
    started: float
    ended: float | None = None
    outcome: Outcome | None = None
    measurement_json: str | None = None
    late_json: str | None = None

    @classmethod
    def of(cls, row: Row) -> "AttemptRow":
        """The attempt of a row of the database."""
        trial, attempt, owner, started, ended, outcome, measurement, late = row
        return cls(
            trial=trial, attempt=attempt, owner=owner, started=started, ended=ended,
            outcome=None if outcome is None else Outcome(outcome), measurement_json=measurement, late_json=late,
        )  # fmt: skip

    @property
    def columns(self) -> Row:
        """The row of the database that ``of`` reads."""
        outcome = None if self.outcome is None else self.outcome.value
        return (self.trial, self.attempt, self.owner, self.started, self.ended, outcome, self.measurement_json, self.late_json)


@frozen
class TrialRow:
    """A trial with all its attempts, first to last; ``attempt`` is the number of the last one, 0 before the first."""

    number: int
    key: str
    plan_json: str
    proposed_by: str
    state: TrialState
    attempt: int = 0
    owner: str | None = None
    lease_until: float | None = None
    attempts: tuple[AttemptRow, ...] = ()

    @classmethod
    def of(cls, row: Row) -> "TrialRow":
        """The trial of a row of the database, without its attempts."""
        number, key, plan, proposed_by, state, attempt, owner, lease_until = row
        return cls(
            number=number, key=key, plan_json=plan, proposed_by=proposed_by, state=TrialState(state), attempt=attempt, owner=owner,
            lease_until=lease_until,
        )  # fmt: skip

    @property
    def columns(self) -> Row:
        """The row of the database that ``of`` reads."""
        return (
            self.number, self.key, self.plan_json, self.proposed_by, self.state.value, self.attempt, self.owner, self.lease_until,
        )  # fmt: skip

    @property
    def outcome(self) -> Outcome | None:
        """Outcome of the trial's last attempt; None until it is finished."""
        return self.attempts[-1].outcome if self.state is TrialState.FINISHED else None

    @property
    def measurement_json(self) -> str | None:
        """The measurement that the trial ended with; None until it is finished, and if it ended without a measurement."""
        return self.attempts[-1].measurement_json if self.state is TrialState.FINISHED else None

    @property
    def plan(self) -> Plan:
        """The plan, decoded at each access."""
        return codec.loads(Plan, self.plan_json)

    @property
    def measurement(self) -> Measurement | None:
        """The value of ``measurement_json``, decoded at each access."""
        return None if self.measurement_json is None else codec.loads(Measurement, self.measurement_json)


@frozen
class Counts:
    """Trials by state, and the finished ones by outcome."""

    queued: int
    running: int
    finished: int
    outcomes: dict[Outcome, int]


def history_line(trial: TrialRow) -> dict[str, Any] | None:
    """The trial as a line of a history, which calibration reads; None without a measurement."""
    if trial.measurement_json is None:
        return None
    documents = {"plan": json.loads(trial.plan_json), "measurement": json.loads(trial.measurement_json)}
    bare = {name: {key: value for key, value in data.items() if key not in ENVELOPE} for name, data in documents.items()}
    return {"version": codec.VERSION, **bare, "trial": trial.number, "proposed_by": trial.proposed_by}


def row_checksum(*columns: object) -> str:
    """A checksum over the columns of one row: SHA-256, hexadecimal, first 16 digits."""
    return hashlib.sha256(json.dumps(columns, default=repr).encode()).hexdigest()[:16]
