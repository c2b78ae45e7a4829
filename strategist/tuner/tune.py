"""The loop: propose, execute, record, learn. All that it knows is in the ledger, so it may be killed at any instant."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from strategist.cards.deck import Deck
from strategist.contract import codec
from strategist.contract.measurement import Kind, Measurement, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.cost.calibration import Calibration
from strategist.cost.fit import fit
from strategist.cost.shipped import factors
from strategist.errors import InputError
from strategist.executors.executor import Executor, Progress
from strategist.ledger.ledger import Ledger
from strategist.ledger.rows import Claim, State, TrialRow
from strategist.planner import answer, price_candidate, ranked
from strategist.profiles import history
from strategist.profiles.history import Record
from strategist.profiles.situation import Situation, situation
from strategist.rules.evidence import evidence
from strategist.search.settings import key
from strategist.search.study import Proposal, Tried, propose, score
from strategist.tuner.folder import bind, free_abandoned, owner, publish
from strategist.tuner.learning import errors, errors_left_out, experiment, reaction, trials_of, warned
from strategist.tuner.limits import Limits
from strategist.tuner.result import TrialResult, TuneEvent, TuningResult

LEASE_SECONDS = 30.0
POLL_SECONDS = 0.2
CANDIDATES = 5000
"""So many of the best predicted candidates are considered, which takes about a second a thousand."""

EXPERIMENT_EVERY = 3
"""Every so manieth trial tests what a card says, so that measurements settle it."""

PATIENCE = 10.0
"""A step may take so many times its prediction before it counts as hung."""

BREAKER = 5
"""So many trials in a row that did not start for reasons outside their plans end a tuning."""

OnTuneEvent = Callable[[TuneEvent], None]


class _LeaseLostError(Exception):
    """Another tuner has taken the trial over; raised through the executor to end it."""


def tune(
    request: Request,
    *,
    study: Path,
    limits: Limits,
    settings: TrialSettings,
    deck: Deck,
    executor: Executor,
    on_event: OnTuneEvent | None = None,
    prior: Calibration | None = None,
    kind: Kind = Kind.REAL,
    program: str = "",
    server: str = "",
) -> TuningResult:
    """Measures until the study holds ``trials`` finished trials, those of earlier and of other tuners included; ``kind`` is what
    the executor's measurements are, all of a study alike but for plans that it simulated and did not start, which count for none;
    ``program`` names the content of the description of what is trained, where that is not ours.

    The ledger is ``study.sqlite`` in the folder, or lies on a PostgreSQL ``server``, which later tunings find by the folder. Leaves
    ``history.jsonl``, ``result.json``, ``best-plan.json`` and ``calibration.json`` in the folder; on
    KeyboardInterrupt too, which is raised again.

    Raises:
        InputError: nothing fits, the study is of another request, or trials do not start here.
        FileError: the folder or its ledger cannot be used.
    """
    asked = situation(replace(request, backend="native") if request.backend == "any" else request)
    prior = factors(prior, asked.cluster)
    space = ranked(asked, deck=deck, calibration=prior, limit=CANDIDATES)
    if not space:
        verdict = answer(asked.request, deck=deck, calibration=prior).verdict
        raise InputError(
            f"--model {request.model} --gpus {request.gpus}", verdict, "plan it first: strategist plan shows what would fit"
        )
    folder = study.resolve()
    with Ledger.open(folder, create=True, server=server) as ledger:
        bind(ledger, folder, asked, kind, program)
        loop = _Loop(
            asked=asked, folder=folder, ledger=ledger, limits=limits, settings=settings, deck=deck, executor=executor,
            on_event=on_event or _silent, prior=prior, calibration=prior, space=space, ranked_by=prior,
        )  # fmt: skip
        try:
            loop.run()
        except KeyboardInterrupt:
            loop.result()
            raise
        return loop.result()


def _patient(settings: TrialSettings, plan: Plan) -> TrialSettings:
    """Deadlines that leave a slow plan its time."""
    step = max(settings.step_timeout_seconds, PATIENCE * plan.estimate.step_seconds)
    steps = settings.warmup_steps + settings.steps + 1
    needed = settings.init_timeout_seconds + steps * PATIENCE * plan.estimate.step_seconds
    wall = None if settings.wall_timeout_seconds is None else max(settings.wall_timeout_seconds, needed)
    return replace(settings, step_timeout_seconds=step, wall_timeout_seconds=wall)


def _silent(event: TuneEvent) -> None:
    """Nobody listens."""


@dataclass(kw_only=True)
class _Loop:
    """One tuner at work on a study: its tools, and what it has learned since it started."""

    asked: Situation
    folder: Path
    ledger: Ledger
    limits: Limits
    settings: TrialSettings
    deck: Deck
    executor: Executor
    on_event: OnTuneEvent
    prior: Calibration
    calibration: Calibration
    space: tuple[Plan, ...]
    ranked_by: Calibration
    rows: tuple[TrialRow, ...] = ()
    results: dict[int, TrialResult] = field(default_factory=dict)
    reacted: set[int] = field(default_factory=set)
    not_started: int = 0
    ended: str = ""

    def run(self) -> None:
        """Until enough trials are finished, a limit is reached, or nothing is left to try."""
        free_abandoned(self.ledger)
        while True:
            self.refresh()
            waiting = [row for row in self.rows if row.state is not State.FINISHED]
            if len(self.rows) - len(waiting) >= self.last:
                return
            if len(self.rows) < self.last and not any(row.state is State.QUEUED for row in waiting):
                self.ended = self.limits.used_up(self.rows, self.asked.cluster.devices) or self.enqueue()
            claim = self.ledger.claim(owner(), LEASE_SECONDS, last=self.last)
            if claim is not None:
                self.execute(claim)
            elif self.ended and not waiting:
                return
            else:
                self.tell(self.last, "waiting")
                time.sleep(POLL_SECONDS)
                free_abandoned(self.ledger)

    @property
    def last(self) -> int:
        """Number of the last trial: one that a simulation kept from starting takes no place of another."""
        return self.limits.trials + sum(result.simulated for result in self.results.values())

    def refresh(self) -> None:
        """Takes in what the ledger holds, and learns when more trials are finished than before."""
        self.rows = self.ledger.trials()
        fresh = [row for row in self.rows if row.state is State.FINISHED and row.number not in self.results]
        if not fresh:
            return
        self.results |= {row.number: _result(row) for row in fresh}
        publish(self.ledger.export_jsonl, self.folder / "history.jsonl")
        self.calibration = fit(self.records(), self.prior)

    def candidates(self) -> tuple[Plan, ...]:
        """The space as today's calibration ranks it; whoever needs no proposal does not wait for it."""
        if self.ranked_by != self.calibration:
            self.space = ranked(self.asked, deck=self.deck, calibration=self.calibration, limit=CANDIDATES)
            self.ranked_by = self.calibration
        return self.space

    def records(self) -> tuple[Record, ...]:
        """What was measured so far, out of the file that people can read."""
        return history.read(self.folder / "history.jsonl").records

    def enqueue(self) -> str:
        """Queues the next candidate: what a card wants after the latest trial, else an experiment or what the search proposes. Says
        why there is none."""
        proposal = self.proposal() if self.limits.least_gain else None
        gain = None if proposal is None else proposal.expected_gain
        if gain is not None and gain < self.limits.least_gain and self.best() is not None:
            return f"no candidate is expected to be better than the best by more than {gain:.2%}"
        found = self.wanted_by_a_card() or self.experiment()
        if found is None:
            proposal = proposal or self.proposal()
            found = None if proposal is None else (proposal.plan, "search")
        if found is None:
            return "every candidate was tried"
        plan, proposed_by = found
        self.ledger.enqueue(key(plan.candidate), codec.dumps(plan), proposed_by)
        return ""

    def proposal(self) -> Proposal | None:
        """What the search would try next."""
        objective, limits = self.asked.request.objective, self.limits
        return propose(self.candidates(), self.tried(), objective, limits.sampler, limits.seed)

    def wanted_by_a_card(self) -> tuple[Plan, str] | None:
        """At most one proposal for each trial."""
        finished = [row for row in self.rows if row.state is State.FINISHED]
        latest = max(finished, key=lambda row: row.attempts[-1].ended or 0.0, default=None)
        if latest is None or latest.number in self.reacted:
            return None
        self.reacted.add(latest.number)
        result = self.results[latest.number]
        if result.measurement is None:
            return None
        record = Record(plan=result.plan, measurement=result.measurement)
        tried = [self.plan_of(row).candidate for row in self.rows]
        return reaction(self.deck, self.asked, record, self.candidates(), tried, self.calibration)

    def experiment(self) -> tuple[Plan, str] | None:
        """Every so manieth trial puts a card to the test, beside the best trial so far; what is in part modelled tests none."""
        best = self.best()
        if best is not None and best.measurement is not None and best.measurement.kind is not Kind.REAL:
            return None
        if len(self.rows) % EXPERIMENT_EVERY != EXPERIMENT_EVERY - 1 or best is None or best.measurement is None:
            return None
        record = Record(plan=best.plan, measurement=best.measurement)
        tried = [self.plan_of(row).candidate for row in self.rows]
        return experiment(self.deck, self.asked, record, self.records(), self.candidates(), tried)

    def tried(self) -> list[Tried]:
        """Every trial of the ledger, its plan priced by today's calibration."""
        known = {key(plan.candidate): plan for plan in self.candidates()}
        return [Tried(plan=known.get(row.key) or self.price(row), measurement=self.measurement_of(row)) for row in self.rows]

    def price(self, row: TrialRow) -> Plan:
        return price_candidate(self.asked, self.plan_of(row).candidate, deck=self.deck, calibration=self.calibration)

    def plan_of(self, row: TrialRow) -> Plan:
        known = self.results.get(row.number)
        return known.plan if known else codec.loads(Plan, row.plan_json)

    def measurement_of(self, row: TrialRow) -> Measurement | None:
        known = self.results.get(row.number)
        return known.measurement if known else None

    def execute(self, claim: Claim) -> None:
        """Runs a claimed trial and records how it ended; whatever goes wrong here gives the claim back."""
        try:
            measurement = self.measure(claim)
        except _LeaseLostError:
            return
        except BaseException:
            self.ledger.release(claim)
            raise
        self.ledger.finish(claim, measurement.outcome, codec.dumps(measurement))
        self.refresh()
        self.tell(claim.number, "done")
        self.not_started = self.not_started + 1 if measurement.outcome is Outcome.INFRASTRUCTURE else 0
        if self.not_started >= BREAKER:
            law = f"{BREAKER} trials in a row did not start: {measurement.evidence.message or 'see the logs in trials/'}"
            raise InputError(f"study {self.folder}", law, "correct that and start again; finished trials are kept")

    def measure(self, claim: Claim) -> Measurement:
        """The trial itself; the lease is renewed while it shows signs of life."""
        plan = codec.loads(Plan, claim.plan_json)
        renewed = time.monotonic()

        def on_progress(progress: Progress) -> None:
            nonlocal renewed
            if time.monotonic() - renewed > LEASE_SECONDS / 4:
                if not self.ledger.renew(claim, LEASE_SECONDS):
                    raise _LeaseLostError
                renewed = time.monotonic()
            self.tell(claim.number, progress.phase, progress.step, progress.elapsed_seconds)

        self.tell(claim.number, "start")
        folder = self.folder / "trials" / f"{claim.number}-{claim.attempt}"
        return self.executor.execute(plan, folder, _patient(self.settings, plan), on_progress)

    def tell(self, trial: int, phase: str, step: int | None = None, elapsed_seconds: float = 0.0) -> None:
        """One event to whoever listens."""
        walls = [attempt.ended - attempt.started for row in self.rows for attempt in row.attempts if attempt.ended and row.outcome]
        left = max(0, self.last - len(self.results)) * statistics.median(walls) - elapsed_seconds if walls else None
        best = self.best()
        self.on_event(
            TuneEvent(
                trial=trial, trials=self.last, finished=len(self.results), phase=phase, step=step,
                best_tokens_per_second=best.measurement.tokens_per_second if best and best.measurement else None,
                seconds_left=None if left is None else max(0.0, left),
            )
        )  # fmt: skip

    def best(self) -> TrialResult | None:
        """The trial that the objective ranks first."""
        objective = self.asked.request.objective
        scored = [(value, item) for item in self.results.values() if (value := score(item.measurement, objective)) is not None]
        return min(scored, key=lambda pair: (pair[0], pair[1].number))[1] if scored else None

    def result(self) -> TuningResult:
        """What the study has shown so far, also written into its folder."""
        self.refresh()
        publish(self.ledger.export_jsonl, self.folder / "history.jsonl")  # another tuner's may have been older than ours
        records, best = self.records(), self.best()
        result = TuningResult(
            study=str(self.folder),
            request=self.asked.request,
            trials=tuple(self.results[number] for number in sorted(self.results)),
            best=best,
            ended=self.ended,
            calibration_before=self.prior,
            calibration_after=self.calibration,
            errors_before=errors(self.asked, self.deck, records, lambda _: self.prior),
            errors_after=errors(self.asked, self.deck, records, lambda _: self.calibration),
            errors_left_out=errors_left_out(self.asked, self.deck, records, self.prior),
            evidence=evidence(self.deck, trials_of(records)),
            warnings=warned(self.deck, Record(plan=best.plan, measurement=best.measurement)) if best and best.measurement else (),
        )
        for name, value in (("result", result), ("best-plan", best and best.plan), ("calibration", self.calibration)):
            if value is not None:
                publish(lambda path, value=value: codec.save(value, path), self.folder / f"{name}.json")  # type: ignore[misc]
        return result


def _result(row: TrialRow) -> TrialResult:
    text = row.measurement_json
    return TrialResult(
        number=row.number,
        proposed_by=row.proposed_by,
        plan=codec.loads(Plan, row.plan_json),
        measurement=None if text is None else codec.loads(Measurement, text),
    )
