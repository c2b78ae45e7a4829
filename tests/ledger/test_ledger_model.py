"""The ledger against a dictionary as a model: any sequence of calls, crashes and expiries leads to equal states."""

import shutil
import tempfile
from pathlib import Path

import pytest
from chaos import Chaos
from hypothesis import seed, settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule, run_state_machine_as_test
from postgres_server import postgres_full_only

from strategist.contract.measurement import Outcome
from strategist.contract.study import TrialState
from strategist.ledger.ledger import Ledger
from strategist.ledger.rows import MAX_ATTEMPTS, RETRIED_OUTCOMES, Claim

ALIVE, EXPIRED = 1000.0, -1.0


class Modelled:
    """A trial of the model: outcomes of its attempts, and whether the last lease has expired."""

    def __init__(self) -> None:
        self.state = TrialState.QUEUED
        self.expired = False
        self.outcomes: list[Outcome | None] = []
        self.late: dict[int, str] = {}
        self.results: dict[int, str] = {}

    @property
    def tries(self) -> int:
        return sum(outcome in RETRIED_OUTCOMES for outcome in self.outcomes)


class LedgerMachine(RuleBasedStateMachine):
    claims = Bundle("claims")
    begun = 0
    """Number of state machines run; ``compared`` is the number of comparisons."""
    compared = 0

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.ledger = Ledger.open(self.folder, create=True, server=self.address())
        self.model: dict[str, Modelled] = {}

    def address(self) -> str:
        """Address of the ledger's server; empty for a file."""
        return ""

    def teardown(self) -> None:
        self.ledger.close()
        shutil.rmtree(self.folder)

    def trial(self, claim: Claim) -> Modelled:
        return list(self.model.values())[claim.number - 1]

    def holds(self, claim: Claim) -> bool:
        trial = self.trial(claim)
        return trial.state is TrialState.RUNNING and len(trial.outcomes) == claim.attempt

    @rule(key=st.sampled_from("abcd"))
    def enqueue(self, key: str) -> None:
        self.model.setdefault(key, Modelled())
        assert self.ledger.enqueue(key, f'"{key}"', "test") == list(self.model).index(key) + 1

    @rule(target=claims, lease=st.sampled_from([ALIVE, EXPIRED]))
    def claim(self, lease: float) -> object:
        for trial in self.model.values():
            if trial.state is TrialState.RUNNING and trial.expired and trial.tries + 1 >= MAX_ATTEMPTS:
                trial.state, trial.outcomes[-1] = TrialState.FINISHED, Outcome.LOST
        queued = [key for key, trial in self.model.items() if trial.state is TrialState.QUEUED]
        expired = [key for key, trial in self.model.items() if trial.state is TrialState.RUNNING and trial.expired]
        claim = self.ledger.claim("w", lease)
        if not queued + expired:
            assert claim is None
            return multiple()
        key = (queued + expired)[0]
        trial = self.model[key]
        if trial.state is TrialState.RUNNING:
            trial.outcomes[-1] = Outcome.LOST
        trial.outcomes.append(None)
        trial.state, trial.expired = TrialState.RUNNING, lease == EXPIRED
        number = list(self.model).index(key) + 1
        assert claim == Claim(number=number, attempt=len(trial.outcomes), plan_json=f'"{key}"', proposed_by="test")
        return claim

    @rule(claim=claims, lease=st.sampled_from([ALIVE, EXPIRED]))
    def renew(self, claim: Claim, lease: float) -> None:
        assert self.ledger.renew(claim, lease) == self.holds(claim)
        if self.holds(claim):
            self.trial(claim).expired = lease == EXPIRED

    @rule(claim=claims, outcome=st.sampled_from(Outcome), text=st.sampled_from(['"x"', '"y"']))
    def finish(self, claim: Claim, outcome: Outcome, text: str) -> None:
        trial, held = self.trial(claim), self.holds(claim)
        repeated = (trial.outcomes[claim.attempt - 1], trial.results.get(claim.attempt)) == (outcome, text)
        assert self.ledger.finish(claim, outcome, text) == (held or repeated)
        if held:
            trial.outcomes[-1], trial.results[claim.attempt] = outcome, text
            again = outcome in RETRIED_OUTCOMES and trial.tries < MAX_ATTEMPTS
            trial.state = TrialState.QUEUED if again else TrialState.FINISHED
        elif not repeated:
            trial.late.setdefault(claim.attempt, text)

    @rule(claim=consumes(claims))
    def release(self, claim: Claim) -> None:
        held = self.holds(claim)
        assert self.ledger.release(claim) == held
        if held:
            self.trial(claim).outcomes[-1] = Outcome.CANCELLED
            self.trial(claim).state = TrialState.QUEUED

    @rule()
    def reopen(self) -> None:
        self.ledger.close()
        self.ledger = Ledger.open(self.folder)

    @invariant()
    def ledger_equals_model(self) -> None:
        rows = self.ledger.trials()
        assert [row.key for row in rows] == list(self.model)
        for row, trial in zip(rows, self.model.values(), strict=True):
            assert row.state is trial.state
            assert [attempt.outcome for attempt in row.attempts] == trial.outcomes
            assert {a.attempt: a.late_json for a in row.attempts if a.late_json} == trial.late
            assert {a.attempt: a.measurement_json for a in row.attempts if a.measurement_json} == trial.results
            finished = trial.state is TrialState.FINISHED
            assert row.outcome is (trial.outcomes[-1] if finished else None)
            assert row.measurement_json == (trial.results.get(len(trial.outcomes)) if finished else None)
        type(self).compared += 1


@postgres_full_only
@pytest.mark.timeout(300)
@pytest.mark.chaos("The store", "equality with a dictionary as a model, call for call")
def test_any_sequence_of_calls_leaves_the_ledger_equal_to_the_model(server: str, chaos: Chaos) -> None:
    runs, calls = chaos.size(12, 500), 30

    class Compared(LedgerMachine):
        def address(self) -> str:
            type(self).begun += 1
            return server and f"{server}-{self.begun}"

    limits = settings(max_examples=runs, stateful_step_count=calls, database=None)
    run_state_machine_as_test(seed(chaos.seed)(Compared), settings=limits)
    assert Compared.begun >= runs
    chaos.found(f"no difference in {Compared.begun:,} runs of up to {calls} calls, compared {Compared.compared:,} times")
