"""Tuning with trials that fail independently of their plans, and adaptive start deadlines."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from chaos import Chaos
from tuner_stand_in import SETTINGS, StandIn

from strategist.contract.measurement import Evidence, Kind, Measurement, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.progress import Progress
from strategist.contract.request import Request
from strategist.errors import InputError
from strategist.executors.executor import Executor, OnEvent, TrialRunner
from strategist.search.tuning_result import TuningResult
from strategist.tuner.limits import Limits
from strategist.tuner.tune import MAX_EQUAL_FAILURES, tune
from tuner.studies import ANY, DECK, REQUEST

Run = Callable[..., TuningResult]

EVEN = replace(ANY, confidence=0.5)
"""A request with enough candidates that fit after five trials in a row were out of memory."""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """``run(trials, executor)`` tunes the same request in the same folder."""

    def tuned(trials: int, executor: Executor, request: Request = REQUEST) -> TuningResult:
        limits = Limits(trials=trials, confirm=0)
        return tune(
            request, study=tmp_path / "study", limits=limits, runner=TrialRunner(executor=executor, settings=SETTINGS), deck=DECK
        )

    return tuned


@dataclass(frozen=True, kw_only=True)
class Failing:
    """Each trial ends with the next of ``failures``: the message of an infrastructure failure, or an outcome; then trials succeed.
    ``start_seconds`` is the time until the first step; ``deadlines`` records the start deadlines."""

    failures: Iterator[str] = field(default_factory=lambda: iter(()))
    start_seconds: float = 0.0
    deadlines: list[float] = field(default_factory=list)

    def execute(self, plan: Plan, folder: Path, settings: TrialSettings, on_event: OnEvent | None = None) -> Measurement:
        self.deadlines.append(settings.init_timeout_seconds)
        on_event(Progress(phase="build", step=None, elapsed_seconds=self.start_seconds))
        failure = next(self.failures, None)
        if isinstance(failure, str) and not isinstance(failure, Outcome):
            evidence = Evidence(message=failure, log_tail="errno: 98 - Address already in use\n====\n")
            return Measurement(plan_id=plan.id, kind=Kind.REAL, outcome=Outcome.INFRASTRUCTURE, evidence=evidence)
        return StandIn(outcome=failure or Outcome.OK).execute(plan, folder, settings, on_event)

    def preflight(self, plan: Plan) -> None:
        """Any plan runs."""


@pytest.mark.chaos("Trials", "five equal infrastructure failures end a tuning")
def test_equal_infrastructure_failures_end_a_tuning(run: Run, chaos: Chaos) -> None:
    """Messages that differ in numbers are equal; out of memory does not count."""
    failures = [text for port in range(20) for text in (f"port {port} is taken", f"rank {port % 2}: no disk")]
    failing = Failing(failures=iter(failures))
    with pytest.raises(
        InputError,
        match=r"5 trials failed for the same reason with any plan: port 4 is taken \(errno: 98 - Address already in use\); correct",
    ) as caught:
        run(20, failing)
    assert "\n" not in str(caught.value)
    assert len(failing.deadlines) == 2 * MAX_EQUAL_FAILURES - 1
    chaos.found(f"stopped after {MAX_EQUAL_FAILURES} of one and {len(failing.deadlines) - MAX_EQUAL_FAILURES} of another reason")
    trials = chaos.size(6, 9)
    result = run(trials, StandIn(outcome=Outcome.OOM))
    assert len(result.trials) == trials
    chaos.found(f"{trials} out of memory in a row did not stop it")


@pytest.mark.parametrize(
    ("outcome", "request_of"),
    [pytest.param(Outcome.NAN, REQUEST, id="nan"), pytest.param(Outcome.OOM, EVEN, id="out of memory", marks=pytest.mark.full)],
)
def test_failures_between_valid_trials_do_not_add_up(run: Run, outcome: Outcome, request_of: Request) -> None:
    trials = MAX_EQUAL_FAILURES + 1
    failures = (text for number in range(trials) for text in (f"port {number} is taken", outcome))
    assert len(run(trials, Failing(failures=failures), request_of).trials) == trials


def test_the_start_deadline_grows_with_the_measured_start(run: Run) -> None:
    """Five times the measured start, and at least that of the settings."""
    quick, slow = Failing(start_seconds=1.0), Failing(start_seconds=100.0)
    run(1, quick)
    run(3, slow)
    assert quick.deadlines == [120.0]
    assert slow.deadlines == [120.0, 500.0]
