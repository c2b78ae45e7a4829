"""Study: its trials, its goals and its best plan, as shown to users."""

from enum import StrEnum
from pathlib import Path

from strategist.contract import codec
from strategist.contract.goals import THROUGHPUT_ONLY, Goals
from strategist.contract.measurement import Kind, Measurement
from strategist.contract.outcome import Outcome
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.frozen import frozen

HISTORY, RESULT, BEST, CALIBRATION = "history.jsonl", "result.json", "best-plan.json", "calibration.json"
"""Files of a study's folder that users and other commands read."""

REPEAT = "repeat"
"""Value of ``proposed_by`` for a longer repeat of a finalist, before the best is declared."""


def repeat_key(key: str, number: int) -> str:
    """Key of the trial that repeats the candidate with this key for the ``number``-th time, from 1 on."""
    return f"{key} {REPEAT} {number}"


class TrialState(StrEnum):
    """State of a trial: waits for a tuner, runs, or ended."""

    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"


class StudyStatus(StrEnum):
    """Status of a study: a trial runs, trials wait for a tuner, or all trials ended."""

    RUNNING = "running"
    WAITING = "waiting"
    FINISHED = "finished"


@frozen
class TrialResult:
    """A trial: its plan with the prediction made when it was proposed, and its measurement; None before it has ended, and if it was
    lost.
    """

    number: int
    proposed_by: str
    plan: Plan
    measurement: Measurement | None

    @property
    def simulated(self) -> bool:
        """Whether it was only simulated: the simulation showed that it must not start."""
        return self.measurement is not None and self.measurement.kind is Kind.SIMULATED


@frozen
class StudyTrial(TrialResult):
    """A trial of a study, whether it has ended or not.

    owner: the tuner that runs it, or ran it last.
    started, ended: seconds since 1970, of the last attempt; None before it.
    misses: constraints that it violates.
    front: whether it is on the Pareto front; None with a single objective.
    """

    state: str
    outcome: Outcome | None
    attempts: int
    owner: str | None
    started: float | None
    ended: float | None
    misses: tuple[str, ...] = ()
    front: bool | None = None

    @property
    def end(self) -> str:
        """Its outcome, or its state before it has one."""
        return self.outcome.value if self.outcome else self.state


@frozen
class WarmStartSummary:
    """Another study that this study uses as a warm start: its model, its GPUs, and the number of its trials."""

    study: str
    model: str
    gpus: str
    trials: int


@frozen
class Study:
    """A study with all its trials.

    best: number of the trial that the objective ranks first.
    front: numbers of the trials on the Pareto front; empty with a single objective.
    nearest: number of the trial that violates the constraints least, where all trials violate them.
    warmed_by: studies that this study uses as a warm start.
    """

    study: str
    request: Request
    kind: Kind
    status: StudyStatus
    best: int | None
    trials: tuple[StudyTrial, ...]
    warmed_by: tuple[WarmStartSummary, ...] = codec.added(())
    goals: Goals = THROUGHPUT_ONLY
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
        """File of the calibration factors fitted to its trials; None before a tuning has ended, and for a study on a server."""
        path = Path(self.study) / CALIBRATION
        return path if path.is_file() else None

    @property
    def attempts(self) -> int:
        """Number of real attempts over all trials, without simulations."""
        return sum(trial.attempts for trial in self.trials if not trial.simulated)

    @property
    def counted(self) -> int:
        """Number of finished trials that count toward a tuning's limit: no repeats, no simulations."""
        return sum(not trial.simulated and trial.proposed_by != REPEAT for trial in self.finished)


@frozen
class StudySummary:
    """A row of the list of studies.

    ``problem``: the reason why the study cannot be read; all other fields then keep their defaults.
    """

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


@frozen
class ImportResult:
    """Result of an import: number of trials ``imported``, and of ``duplicates`` that the study already had."""

    study: str
    imported: int
    duplicates: int
