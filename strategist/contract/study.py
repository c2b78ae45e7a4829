"""A study and its trials, as users see them."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from strategist.contract import codec
from strategist.contract.goals import PLAIN, Goals
from strategist.contract.measurement import Kind, Measurement
from strategist.contract.outcome import Outcome
from strategist.contract.plan import Plan
from strategist.contract.request import Request

HISTORY, RESULT, BEST, CALIBRATION = "history.jsonl", "result.json", "best-plan.json", "calibration.json"
"""The files of a study that people and other commands read."""

REPEAT = "repeat"
"""Proposer of a longer repeat of a trial, which shows whether it is the best."""


def repeat_key(key: str, number: int) -> str:
    """Key of the trial that repeats the candidate with this key for the ``number``-th time, from 1 on."""
    return f"{key} {REPEAT} {number}"


class TrialState(StrEnum):
    """State of a trial: queued, run by a tuner, or ended."""

    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"


class StudyStatus(StrEnum):
    """State of a study: a trial runs, some wait for a tuner, or all are finished."""

    RUNNING = "running"
    WAITING = "waiting"
    FINISHED = "finished"


@dataclass(frozen=True, kw_only=True)
class StudyTrial:
    """One trial. ``owner`` runs it or ran it last; times are seconds since 1970, of its last attempt, and None before it.
    ``misses`` are the constraints that it does not keep to; ``front`` says whether no other dominates it, None where there is one
    objective."""

    number: int
    proposed_by: str
    state: str
    outcome: Outcome | None
    attempts: int
    owner: str | None
    started: float | None
    ended: float | None
    plan: Plan
    measurement: Measurement | None
    misses: tuple[str, ...] = ()
    front: bool | None = None

    @property
    def simulated(self) -> bool:
        """Whether a simulation kept it from starting."""
        return self.measurement is not None and self.measurement.kind is Kind.SIMULATED


@dataclass(frozen=True, kw_only=True)
class WarmStartSummary:
    """Summary of a warm start."""

    study: str
    model: str
    gpus: str
    trials: int


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study with all its trials; ``best`` is the number of the one that the objective ranks first, ``front`` are those that no
    other dominates, where there are several objectives, and ``nearest`` is the one which misses the constraints by least, where
    none keeps to them. ``warmed_by`` is what other studies tell it."""

    study: str
    request: Request
    kind: Kind
    status: StudyStatus
    best: int | None
    trials: tuple[StudyTrial, ...]
    warmed_by: tuple[WarmStartSummary, ...] = codec.added(())
    goals: Goals = PLAIN
    front: tuple[int, ...] = ()
    nearest: int | None = None

    @property
    def finished(self) -> tuple[StudyTrial, ...]:
        return tuple(trial for trial in self.trials if trial.state == TrialState.FINISHED)

    @property
    def best_trial(self) -> StudyTrial | None:
        return None if self.best is None else self.trials[self.best - 1]

    @property
    def calibration(self) -> Path | None:
        """The file of what it taught, which plans take; None before a tuning of it has ended, and where only a server has it."""
        path = Path(self.study) / CALIBRATION
        return path if path.is_file() else None

    @property
    def attempts(self) -> int:
        """How often a trial of it was run."""
        return sum(trial.attempts for trial in self.trials if not trial.simulated)

    @property
    def counted(self) -> int:
        """The finished trials that count for the limit of a tuning: neither repeats nor simulations."""
        return sum(not trial.simulated and trial.proposed_by != REPEAT for trial in self.finished)


@dataclass(frozen=True, kw_only=True)
class StudySummary:
    """A line of a list; ``problem`` says why a study cannot be read, and then the rest says nothing."""

    study: str
    model: str = ""
    gpus: str = ""
    objective: str = ""
    status: StudyStatus | None = None
    trials: int = 0
    finished: int = 0
    best: int | None = None
    best_step_seconds: float | None = None
    best_tokens_per_second: float | None = None
    best_peak_memory_bytes: int | None = None
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class ImportResult:
    """Result of an import: trials ``imported`` into the study, and ``duplicates`` that it had already."""

    study: str
    imported: int
    duplicates: int
