"""Tuning loop: propose, execute, record, learn. All state is in the ledger, so the process can be killed at any time."""

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from strategist.cards.deck import Deck
from strategist.contract import codec
from strategist.contract.goals import Goals
from strategist.contract.measurement import EVIDENCE_OUTCOMES, Kind, Measurement, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.progress import Progress
from strategist.contract.request import Request
from strategist.contract.study import BEST, CALIBRATION, HISTORY, REPEAT, RESULT, TrialResult, TrialState
from strategist.cost.calibration import Calibration
from strategist.cost.fit import fit
from strategist.cost.shipped_calibrations import factors
from strategist.errors import InputError
from strategist.executors.deadlines import RUNNING, STARTING
from strategist.executors.executor import TrialRunner
from strategist.ledger.ledger import Ledger
from strategist.ledger.rows import Claim, TrialRow
from strategist.planning.planner import answer
from strategist.profiles import history
from strategist.profiles.history import Record
from strategist.profiles.situation import situation
from strategist.programs.backends import stack_of
from strategist.rules.evidence import evidence
from strategist.search.tuning_result import TuningResult
from strategist.tuner.card_evidence import trials_of
from strategist.tuner.card_proposals import card_warnings
from strategist.tuner.event import EventType, TuneEvent
from strategist.tuner.finalists import REPEAT_LENGTH, confirmation, front, nearest
from strategist.tuner.limits import Limits
from strategist.tuner.prediction_errors import errors, errors_left_out
from strategist.tuner.proposals import Proposed, latest_trial, next_trial, repeated_trial
from strategist.tuner.pruning import pruned_measurement, pruning_reason
from strategist.tuner.study_folder import owner, release_abandoned, set_goals, set_request
from strategist.tuner.study_state import Rankings, StudyState
from strategist.tuner.warm_start import PricedWarmStart, WarmStart, add_warm_starts

LEASE_SECONDS = 30.0
POLL_SECONDS = 0.2

STEP_TIMEOUT_FACTOR = 10.0
"""Factor on the predicted step time, which the calibration corrects, after which a step counts as hung."""

START_TIMEOUT_FACTOR = 5.0
"""Factor on the longest start of a trial that this tuner measured, after which a start counts as hung."""

MAX_EQUAL_FAILURES = 5
"""Number of failures with one reason outside the plans that ends a tuning, unless a plan was tested in between."""

OnTuneEvent = Callable[[TuneEvent], None]


class _LeaseLostError(Exception):
    """Another tuner has claimed the trial; raised through the executor to end the run."""


class _PrunedError(Exception):
    """The trial cannot become the best any more; raised through the executor to end the run."""

    def __init__(self, reason: str, progress: Progress) -> None:
        super().__init__(reason)
        self.reason, self.progress = reason, progress


def tune(
    request: Request,
    *,
    study: Path,
    limits: Limits,
    runner: TrialRunner,
    deck: Deck,
    on_event: OnTuneEvent | None = None,
    prior: Calibration | None = None,
    server: str = "",
    warm: Sequence[WarmStart] = (),
    goals: Goals | None = None,
) -> TuningResult:
    """Runs trials until the study holds ``limits.trials`` finished ones, counting those of earlier and of parallel tuners.

    The ledger is ``study.sqlite`` in the folder ``study``, or lies on a PostgreSQL ``server``, which later tunings find by the
    folder. Writes ``history.jsonl``, ``result.json``, ``best-plan.json`` and ``calibration.json`` into the folder, also on
    KeyboardInterrupt, which is raised again.

    Args:
        warm: trials of other studies; they are stored in the ledger.
        goals: the study's goals; None means those that it began with, or the request's objective alone in a new study.

    Raises:
        InputError: nothing fits, the study has another request, or trials do not start on this machine.
        FileError: the folder or its ledger cannot be used.
    """
    study_situation = situation(replace(request, backend="native") if request.backend == "any" else request)
    (goals or Goals(objectives=(request.objective,))).check(request.objective, study_situation.cluster)
    prior = factors(prior, study_situation.cluster, stack_of(study_situation.request.backend))
    rankings = Rankings(study_situation, deck, prior)
    if not rankings.latest:
        verdict = answer(study_situation.request, deck=deck, calibration=prior).verdict
        raise InputError(
            f"--model {request.model} --gpus {request.gpus}", verdict, "plan it first: strategist plan shows what would fit"
        )
    folder = study.resolve()
    with Ledger.open(folder, create=True, server=server) as ledger:
        set_request(ledger, folder, study_situation, runner.kind, runner.program)
        agreed = set_goals(ledger, folder, request, goals)
        warm_starts = tuple(PricedWarmStart(item, study_situation) for item in add_warm_starts(ledger, warm))
        loop = _Loop(
            folder=folder, ledger=ledger, limits=limits, runner=runner, on_event=on_event or _ignore_event, prior=prior,
            state=StudyState(situation=study_situation, deck=deck, goals=agreed, rankings=rankings, calibration=prior,
                             warm_starts=warm_starts),
        )  # fmt: skip
        try:
            loop.run()
        except KeyboardInterrupt:
            loop.result()
            raise
        return loop.result()


def _with_deadlines_for(settings: TrialSettings, plan: Plan, longest_start_seconds: float) -> TrialSettings:
    """Settings with deadlines long enough for the plan's predicted steps and the measured starts; never shorter than the given
    ones.
    """
    start = max(settings.init_timeout_seconds, START_TIMEOUT_FACTOR * longest_start_seconds)
    step = max(settings.step_timeout_seconds, STEP_TIMEOUT_FACTOR * plan.estimate.step_seconds)
    steps = settings.warmup_steps + settings.steps + 1
    needed = start + steps * STEP_TIMEOUT_FACTOR * plan.estimate.step_seconds
    wall = None if settings.wall_timeout_seconds is None else max(settings.wall_timeout_seconds, needed)
    return replace(settings, init_timeout_seconds=start, step_timeout_seconds=step, wall_timeout_seconds=wall)


def _reason(measurement: Measurement) -> str:
    """Reason of a failure, with numbers masked so that equal failures have equal reasons."""
    return re.sub(r"\d[\d.]*", "#", measurement.evidence.message)


def _cause(measurement: Measurement) -> str:
    """Reason of a failure, with the last line of the log that is not a ruler."""
    evidence = measurement.evidence
    last_line = next((line for line in reversed(evidence.log_tail.splitlines()) if line.strip(" =-")), "")
    return f"{evidence.message or 'see the logs in trials/'}{last_line and f' ({last_line.strip()})'}"


def _ignore_event(event: TuneEvent) -> None:
    """Ignores every event."""


@dataclass(kw_only=True)
class _Loop:
    """One tuner of a study: its tools, and the state of the study when it last read the ledger."""

    folder: Path
    ledger: Ledger
    limits: Limits
    runner: TrialRunner
    on_event: OnTuneEvent
    prior: Calibration
    state: StudyState
    reacted: set[int] = field(default_factory=set)
    failures: Counter[str] = field(default_factory=Counter)
    longest_start_seconds: float = 0.0
    expected_gain: float | None = None
    ended: str = ""

    def run(self) -> None:
        """Runs trials until enough are finished and the best is confirmed, a limit is reached, or nothing is left to try."""
        release_abandoned(self.ledger)
        self.refresh()
        self.emit(EventType.BEGUN)
        while True:
            self.refresh()
            if not any(row.state is TrialState.QUEUED for row in self.waiting):
                self.enqueue()
            claim = self.ledger.claim(owner(), LEASE_SECONDS, last=self.last)
            if claim is not None:
                self.execute(claim)
            elif not self.waiting:
                self.emit(EventType.OVER)
                return
            else:
                self.emit(EventType.WAITING)
                time.sleep(POLL_SECONDS)
                release_abandoned(self.ledger)

    @property
    def last(self) -> int:
        """Number of the last trial to run; repeats and plans that were only simulated do not count against the limit."""
        repeats = [row.number for row in self.state.rows if row.proposed_by == REPEAT]
        simulated = sum(result.simulated for result in self.state.results.values())
        return max(self.limits.trials + simulated + len(repeats), *repeats, 0)

    @property
    def waiting(self) -> list[TrialRow]:
        """Trials that have not finished, up to ``last``."""
        return [row for row in self.state.waiting if row.number <= self.last]

    def refresh(self) -> None:
        """Reads the ledger; if more trials are finished than before, exports the history and fits the calibration again."""
        state, rows = self.state, self.ledger.trials()
        self.state = replace(state, rows=rows)
        fresh = {row.number: _result(row) for row in rows if row.state is TrialState.FINISHED and row.number not in state.results}
        if not fresh:
            return
        self.ledger.export_jsonl(self.folder / HISTORY)
        records = history.read(self.folder / HISTORY).records  # calibrations are fitted to the readable file only
        calibration = fit(records, self.prior)
        self.state = replace(self.state, results={**state.results, **fresh}, records=records, calibration=calibration)

    def enqueue(self) -> None:
        """Queues the next trial: a new candidate while trials are left, otherwise a repeat if the best is in doubt.

        If nothing is queued, ``ended`` may state the reason.
        """
        state = self.state
        limit_reached = self.limits.exhausted(state.rows, state.situation.cluster.devices)
        trials_left = len(state.rows) < self.last
        found = limit_reached or (next_trial(state, self.limits, self.trial_without_proposal()) if trials_left else None)
        self.ended = found if isinstance(found, str) else ""
        if not isinstance(found, Proposed):
            found = None if limit_reached or self.waiting else repeated_trial(state, self.limits.confirm)
        if found is not None:
            last = None if found.proposed_by == REPEAT else self.last  # other tuners may have queued trials during the search
            self.ledger.enqueue(found.key, codec.one_line(found.plan), found.proposed_by, last)
            self.expected_gain = found.expected_gain
            self.refresh()

    def trial_without_proposal(self) -> TrialRow | None:
        """The latest trial, if the cards have not proposed a trial after it yet; None otherwise. Each trial is returned once."""
        latest = latest_trial(self.state)
        if latest is None or latest.number in self.reacted:
            return None
        self.reacted.add(latest.number)
        return latest

    def execute(self, claim: Claim) -> None:
        """Runs a claimed trial and records its outcome; on any error the claim is released."""
        try:
            measurement = self.measure(claim)
        except _LeaseLostError:
            return
        except BaseException:
            self.ledger.release(claim)
            raise
        self.ledger.finish(claim, measurement.outcome, codec.one_line(measurement))
        self.refresh()
        self.emit(EventType.ENDED)
        self.count_failure(measurement)

    def count_failure(self, measurement: Measurement) -> None:
        """Ends the tuning by an InputError if trials keep failing for one reason that does not depend on their plans."""
        if measurement.outcome in EVIDENCE_OUTCOMES:
            self.failures.clear()
        if measurement.outcome is Outcome.INFRASTRUCTURE:
            self.failures[_reason(measurement)] += 1
        if self.failures[_reason(measurement)] >= MAX_EQUAL_FAILURES:
            law = f"{MAX_EQUAL_FAILURES} trials failed for the same reason with any plan: {_cause(measurement)}"
            do = "correct that (strategist doctor looks at the machine) and start again; finished trials are kept"
            raise InputError(f"study {self.folder}", law, do)

    def measure(self, claim: Claim) -> Measurement:
        """Measurement of a claimed trial. Renews the lease while the trial makes progress, and prunes the trial if it cannot
        become the best.
        """
        self.refresh()
        plan = claim.plan
        repeat = claim.proposed_by == REPEAT
        settings = self.runner.settings
        settings = replace(settings, steps=REPEAT_LENGTH * settings.steps) if repeat else settings
        pruning = not repeat and self.runner.kind is Kind.REAL and self.state.goals.of_steps
        best = self.state.best if pruning else None
        renewed, start_seconds = time.monotonic(), 0.0

        def on_progress(progress: Progress) -> None:
            nonlocal renewed, start_seconds
            if time.monotonic() - renewed > LEASE_SECONDS / 4:
                if not self.ledger.renew(claim, LEASE_SECONDS):
                    raise _LeaseLostError
                renewed = time.monotonic()
            start_seconds = progress.elapsed_seconds if progress.phase in STARTING else start_seconds
            if progress.phase in RUNNING:
                self.longest_start_seconds = max(self.longest_start_seconds, start_seconds)
            self.emit(EventType.PROGRESS, claim.number, progress)
            if best is not None and (reason := pruning_reason(progress, settings, best)):
                raise _PrunedError(reason, progress)

        self.emit(EventType.STARTED, claim.number)
        folder = self.folder / "trials" / f"{claim.number}-{claim.attempt}"
        try:
            return self.runner.executor.execute(
                plan, folder, _with_deadlines_for(settings, plan, self.longest_start_seconds), on_progress
            )
        except _PrunedError as error:
            measurement = pruned_measurement(plan, self.runner.kind, error.progress, error.reason)
            codec.save(measurement, folder / "measurement.json")
            return measurement

    def emit(self, event_type: EventType, trial: int | None = None, progress: Progress | None = None) -> None:
        """Passes one event to ``on_event``."""
        self.on_event(
            TuneEvent(
                event_type=event_type, trial=trial, trials=self.last, progress=progress, state=self.state, limits=self.limits,
                prior=self.prior, kind=self.runner.kind, expected_gain=self.expected_gain,
            )
        )  # fmt: skip

    def result(self) -> TuningResult:
        """The result of the study so far; also written into its folder."""
        self.refresh()
        self.ledger.export_jsonl(self.folder / HISTORY)  # the last export may be that of a tuner with an older state
        state, best, goals = self.state, self.state.best, self.state.goals
        study_situation, deck, records = state.situation, state.deck, state.records
        result = TuningResult(
            study=str(self.folder),
            request=study_situation.request,
            trials=tuple(state.results[number] for number in sorted(state.results)),
            best=best,
            ended=self.ended,
            calibration_before=self.prior,
            calibration_after=state.calibration,
            errors_before=errors(study_situation, records, lambda _: self.prior),
            errors_after=errors(study_situation, records, lambda _: state.calibration),
            errors_left_out=errors_left_out(study_situation, records, self.prior, state.calibration),
            evidence=evidence(deck, trials_of(records)),
            warnings=card_warnings(deck, Record(plan=best.plan, measurement=best.measurement)) if best and best.measurement else (),
            confirmation=confirmation(state.finalists),
            crash_causes=state.crash_causes,
            goals=goals,
            front=front(state.finalists, goals),
            nearest=None if best else nearest(state.results.values(), goals),
        )
        for name, value in ((RESULT, result), (BEST, best and best.plan), (CALIBRATION, state.calibration)):
            path = self.folder / name
            if value is None:
                path.unlink(missing_ok=True)  # the file of a former best trial
            else:
                codec.save(value, path)
        return result


def _result(row: TrialRow) -> TrialResult:
    return TrialResult(number=row.number, proposed_by=row.proposed_by, plan=row.plan, measurement=row.measurement)
