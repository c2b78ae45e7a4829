"""A ledger in one process: claims, leases, fencing, retries, and unchanged rows."""

import json
import sqlite3
from pathlib import Path

import pytest

from strategist.contract.measurement import Outcome
from strategist.contract.study import TrialState
from strategist.errors import InputError
from strategist.ledger.ledger import Ledger
from strategist.ledger.rows import MAX_ATTEMPTS, AttemptRow, TrialRow

LONG, OVER = 1000.0, -1.0
PLAN, RESULT = '{"plan": 1}', '{"result": 1}'


@pytest.fixture
def ledger(tmp_path: Path, server: str):
    with Ledger.open(tmp_path / "study", create=True, server=server) as opened:
        yield opened


def test_the_same_candidate_is_queued_once(ledger: Ledger):
    assert ledger.enqueue("a", PLAN, "predicted") == 1
    assert ledger.enqueue("b", PLAN, "sampler") == 2
    assert ledger.enqueue("a", '{"plan": 2}', "sampler") == 1
    assert [(trial.key, trial.plan_json, trial.proposed_by) for trial in ledger.trials()] == [
        ("a", PLAN, "predicted"),
        ("b", PLAN, "sampler"),
    ]


def test_a_finished_candidate_is_not_queued_again(ledger: Ledger):
    ledger.enqueue("a", PLAN, "")
    assert ledger.finish(ledger.claim("w", LONG), Outcome.OOM, RESULT)
    assert ledger.enqueue("a", PLAN, "") == 1
    assert ledger.claim("w", LONG) is None


def test_claims_follow_trial_numbers_until_none_is_left(ledger: Ledger):
    for key in "abc":
        ledger.enqueue(key, json.dumps({"plan": key}), "")
    claims = [ledger.claim("w", LONG) for _ in range(4)]
    assert [claim and (claim.number, claim.attempt, claim.plan_json) for claim in claims] == [
        (1, 1, '{"plan": "a"}'),
        (2, 1, '{"plan": "b"}'),
        (3, 1, '{"plan": "c"}'),
        None,
    ]


def test_a_budget_limits_the_queue(ledger: Ledger):
    """Several tuners may propose the last trial at the same time."""
    assert ledger.enqueue("a", PLAN, "", last=1) == 1
    assert ledger.enqueue("b", PLAN, "", last=1) is None
    assert ledger.enqueue("a", PLAN, "", last=0) == 1
    assert ledger.enqueue("b", PLAN, "", last=2) == 2
    assert [trial.key for trial in ledger.trials()] == ["a", "b"]


def test_a_budget_limits_claims_to_the_first_trials(ledger: Ledger):
    for key in "ab":
        ledger.enqueue(key, PLAN, "")
    assert ledger.claim("w", OVER, last=1).number == 1
    assert (ledger.claim("w", LONG, last=1).number, ledger.claim("w", LONG, last=1)) == (1, None)
    assert ledger.claim("w", LONG).number == 2


def test_a_result_is_stored_unchanged(ledger: Ledger):
    ledger.enqueue("a", PLAN, "")
    assert ledger.finish(ledger.claim("w", LONG), Outcome.OK, '{"text": "ü\\u0000 \\ud83d\\ude00"}')
    (trial,) = ledger.trials()
    assert (trial.state, trial.outcome, trial.owner, trial.lease_until) == (TrialState.FINISHED, Outcome.OK, None, None)
    assert trial.measurement_json == '{"text": "ü\\u0000 \\ud83d\\ude00"}'
    assert trial.attempts[0].owner == "w"
    assert trial.attempts[0].started <= trial.attempts[0].ended


def test_queued_trials_come_before_expired_ones(ledger: Ledger):
    for key in "ab":
        ledger.enqueue(key, PLAN, "")
    ledger.claim("dead", OVER)
    assert [ledger.claim("w", LONG).number for _ in range(2)] == [2, 1]


def test_a_late_result_after_an_expired_lease_is_only_evidence(ledger: Ledger):
    ledger.enqueue("a", PLAN, "")
    late = ledger.claim("slow", OVER)
    fresh = ledger.claim("quick", LONG)
    assert (fresh.number, fresh.attempt) == (1, 2)
    assert not ledger.renew(late, LONG)
    assert not ledger.finish(late, Outcome.OK, '{"late": 1}')
    assert not ledger.finish(late, Outcome.OK, '{"late": 2}')
    assert ledger.finish(fresh, Outcome.OK, RESULT)
    assert not ledger.finish(late, Outcome.OK, '{"late": 3}')
    (trial,) = ledger.trials()
    assert trial.measurement_json == RESULT
    assert [(a.outcome, a.measurement_json, a.late_json) for a in trial.attempts] == [
        (Outcome.LOST, None, '{"late": 1}'),
        (Outcome.OK, RESULT, None),
    ]


def test_an_expired_lease_is_valid_until_another_worker_claims_the_trial(ledger: Ledger):
    ledger.enqueue("a", PLAN, "")
    claim = ledger.claim("w", OVER)
    assert ledger.renew(claim, LONG)
    assert ledger.claim("other", LONG) is None
    assert ledger.finish(claim, Outcome.OK, RESULT)


def test_finishing_twice_with_equal_results_counts_once(ledger: Ledger):
    ledger.enqueue("a", PLAN, "")
    claim = ledger.claim("w", LONG)
    assert ledger.finish(claim, Outcome.OK, RESULT)
    assert ledger.finish(claim, Outcome.OK, RESULT)
    assert not ledger.finish(claim, Outcome.OOM, RESULT)
    assert ledger.trials()[0].outcome is Outcome.OK


def test_a_trial_lost_in_all_attempts_ends_as_lost(ledger: Ledger):
    ledger.enqueue("a", PLAN, "")
    for attempt in range(1, MAX_ATTEMPTS + 1):
        assert ledger.claim("dies", OVER).attempt == attempt
    assert ledger.claim("w", LONG) is None
    (trial,) = ledger.trials()
    assert (trial.state, trial.outcome, trial.measurement_json) == (TrialState.FINISHED, Outcome.LOST, None)
    assert [attempt.outcome for attempt in trial.attempts] == [Outcome.LOST] * MAX_ATTEMPTS


def test_infrastructure_failures_are_retried_and_the_last_is_kept(ledger: Ledger):
    ledger.enqueue("a", PLAN, "")
    for attempt in range(1, MAX_ATTEMPTS + 1):
        claim = ledger.claim("w", LONG)
        assert claim.attempt == attempt
        assert ledger.finish(claim, Outcome.INFRASTRUCTURE, json.dumps({"attempt": attempt}))
    assert ledger.claim("w", LONG) is None
    assert ledger.trials()[0].outcome is Outcome.INFRASTRUCTURE
    assert ledger.trials()[0].measurement_json == json.dumps({"attempt": MAX_ATTEMPTS})


def test_other_outcomes_are_final(ledger: Ledger):
    final = [outcome for outcome in Outcome if outcome not in (Outcome.INFRASTRUCTURE, Outcome.LOST)]
    for outcome in final:
        ledger.enqueue(outcome, PLAN, "")
        assert ledger.finish(ledger.claim("w", LONG), outcome, RESULT)
        assert ledger.claim("w", LONG) is None
    assert ledger.counts().outcomes == dict.fromkeys(final, 1)


def test_a_released_trial_is_queued_again_without_using_an_attempt(ledger: Ledger):
    ledger.enqueue("a", PLAN, "")
    for _ in range(2 * MAX_ATTEMPTS):
        claim = ledger.claim("w", LONG)
        assert ledger.release(claim)
        assert not ledger.release(claim)
    assert ledger.finish(ledger.claim("w", LONG), Outcome.OK, RESULT)
    outcomes = [attempt.outcome for attempt in ledger.trials()[0].attempts]
    assert outcomes == [Outcome.CANCELLED] * 2 * MAX_ATTEMPTS + [Outcome.OK]


def foreign_trial(outcome: Outcome | None, key: str = "a") -> TrialRow:
    """A trial of another study, finished at the second attempt, or queued."""
    if outcome is None:
        return TrialRow(number=7, key=key, plan_json=PLAN, proposed_by="far", state=TrialState.QUEUED)
    lost = AttemptRow(trial=7, attempt=1, owner="x", started=1.0, ended=2.0, outcome=Outcome.LOST)
    last = AttemptRow(trial=7, attempt=2, owner="y", started=3.0, ended=4.5, outcome=outcome, measurement_json=RESULT)
    return TrialRow(
        number=7, key=key, plan_json=PLAN, proposed_by="far", state=TrialState.FINISHED, attempt=2, attempts=(lost, last)
    )


def test_a_trial_of_another_study_is_imported_once_with_its_attempts(ledger: Ledger):
    ledger.enqueue("b", PLAN, "")
    assert ledger.import_trial(foreign_trial(Outcome.OK))
    assert not ledger.import_trial(foreign_trial(Outcome.OOM))
    trial = ledger.trials()[1]
    assert (trial.number, trial.outcome, trial.measurement_json, trial.proposed_by) == (2, Outcome.OK, RESULT, "far")
    assert [(a.trial, a.attempt, a.owner, a.started, a.ended) for a in trial.attempts] == [
        (2, 1, "x", 1.0, 2.0),
        (2, 2, "y", 3.0, 4.5),
    ]


def test_an_imported_trial_finishes_a_queued_but_not_a_running_trial(ledger: Ledger):
    for key in "ab":
        ledger.enqueue(key, PLAN, "")
    claim = ledger.claim("w", LONG)
    assert not ledger.import_trial(foreign_trial(Outcome.OK, "a"))
    assert ledger.import_trial(foreign_trial(Outcome.OOM, "b"))
    assert ledger.finish(claim, Outcome.OK, RESULT)
    assert [trial.outcome for trial in ledger.trials()] == [Outcome.OK, Outcome.OOM]


def test_an_open_trial_is_imported_as_queued(ledger: Ledger):
    assert ledger.import_trial(foreign_trial(None))
    assert ledger.claim("w", LONG).number == 1
    assert not ledger.import_trial(foreign_trial(None))


def test_counts_are_by_state_and_outcome(ledger: Ledger):
    for key in "abcd":
        ledger.enqueue(key, PLAN, "")
    ledger.finish(ledger.claim("w", LONG), Outcome.OK, RESULT)
    ledger.claim("w", LONG)
    counts = ledger.counts()
    assert (counts.queued, counts.running, counts.finished, counts.outcomes) == (2, 1, 1, {Outcome.OK: 1})


def test_repeated_reads_reuse_unchanged_rows(ledger: Ledger):
    for key in "abcd":
        ledger.enqueue(key, PLAN, "")
    first = ledger.trials()
    assert ledger.trials() is first
    claims = [ledger.claim("w", OVER), ledger.claim("w", LONG)]
    second = ledger.trials()
    assert [trial.state for trial in second] == [TrialState.RUNNING, TrialState.RUNNING, TrialState.QUEUED, TrialState.QUEUED]
    ledger.renew(claims[1], 2 * LONG)
    third = ledger.trials()
    assert third[0] is second[0]
    assert third[1].lease_until > second[1].lease_until
    again = ledger.claim("other", LONG, last=1)
    assert not ledger.finish(claims[0], Outcome.OK, RESULT)
    late = ledger.trials()
    assert (late[0].attempt, late[0].attempts[0].late_json, late[1:]) == (again.attempt, RESULT, third[1:])
    ledger.enqueue("e", PLAN, "")
    assert [trial.key for trial in ledger.trials()] == list("abcde")


def test_facts_of_a_study_are_written_once(ledger: Ledger):
    assert ledger.fact("request") is None
    ledger.set_fact("request", "32b")
    ledger.set_fact("request", "32b")
    with pytest.raises(InputError, match="request: was started with another value"):
        ledger.set_fact("request", "70b")
    assert ledger.fact("request") == "32b"


def test_the_first_value_of_a_fact_is_kept(ledger: Ledger):
    assert ledger.set_default("warm a", "1") == "1"
    assert ledger.set_default("warm a", "2") == "1"
    ledger.set_default("warm b", "3")
    ledger.set_fact("request", "32b")
    assert ledger.facts("warm ") == {"warm a": "1", "warm b": "3"}


def test_invalid_json_is_refused(ledger: Ledger):
    with pytest.raises(json.JSONDecodeError):
        ledger.enqueue("a", "{", "")
    assert ledger.trials() == ()


def test_the_exported_history_has_measured_trials_only(ledger: Ledger, tmp_path: Path):
    for key in "abc":
        ledger.enqueue(key, '{"version": 1, "type": "Plan", "id": "x"}', "predicted")
    ledger.finish(ledger.claim("w", LONG), Outcome.OOM, '{"version": 1, "type": "Measurement", "outcome": "oom"}')
    ledger.finish(ledger.claim("w", LONG), Outcome.INFRASTRUCTURE, RESULT)
    ledger.export_jsonl(tmp_path / "history.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert lines == [{"version": 1, "plan": {"id": "x"}, "measurement": {"outcome": "oom"}, "trial": 1, "proposed_by": "predicted"}]


def test_a_closed_ledger_raises_no_database_error(ledger: Ledger):
    ledger.close()
    with pytest.raises((sqlite3.ProgrammingError, ValueError), match="closed"):
        ledger.trials()
