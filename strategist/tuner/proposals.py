"""Proposals: the next trial of a study, from crash bisection, a card, the search, or a repeat of a finalist."""

from strategist.contract.measurement import Kind
from strategist.contract.plan import Plan
from strategist.contract.study import REPEAT, TrialState, repeat_key
from strategist.frozen import frozen
from strategist.ledger.rows import TrialRow
from strategist.profiles.history import Record
from strategist.search.study import Proposal, propose
from strategist.tuner.card_proposals import card_proposal, untested_policy_proposal
from strategist.tuner.crash_bisection import MIN_CRASHES, next_question
from strategist.tuner.finalists import next_repeat
from strategist.tuner.limits import Limits
from strategist.tuner.study_state import StudyState

SEARCH, CRASH = "search", "crash:"

EXPERIMENT_EVERY = 3
"""Every this many trials, one tests a policy of a card, so that measurements support or contradict it."""

NOISY_OBJECTIVES = ("throughput", "cost", "energy")
"""Objectives whose measurements are noisy, because they depend on time."""


@frozen
class Proposed:
    """The next trial.

    plan: its plan.
    proposed_by: its proposer.
    key: its key in the ledger, which holds each key once.
    expected_gain: share by which the search expected its proposal to improve on the best; None without a search or an expectation.
    """

    plan: Plan
    proposed_by: str
    key: str
    expected_gain: float | None = None


def next_trial(state: StudyState, limits: Limits, latest: TrialRow | None) -> Proposed | str:
    """The next trial, or the reason why there is none.

    Proposers in order: crash bisection, cards after the ``latest`` trial, an experiment on a card, the search.
    """
    proposal = _search_proposal(state, limits) if limits.least_gain else None
    gain = None if proposal is None else proposal.expected_gain
    if gain is not None and gain < limits.least_gain and state.best is not None:
        better = "enlarge the front" if state.goals.several else "be better than the best"
        return f"no candidate is expected to {better} by more than {gain:.2%}"
    if (bisection := _crash_bisection(state)) is not None:
        return bisection
    found = _card_proposal(state, latest) or _experiment(state)
    if found is None:
        proposal = proposal or _search_proposal(state, limits)
        found = None if proposal is None else (proposal.plan, SEARCH)
    if found is None:
        return "every candidate that fits was tried"
    plan, proposed_by = found
    gain = proposal.expected_gain if proposal is not None and state.best is not None else None
    return Proposed(plan=state.completed(plan), proposed_by=proposed_by, key=plan.candidate.key, expected_gain=gain)


def repeated_trial(state: StudyState, times: int) -> Proposed | None:
    """A repeat of one of the best two, while it is unclear which is better; None otherwise."""
    if state.goals.objective not in NOISY_OBJECTIVES:
        return None
    others = [row.number for row in state.rows if row.proposed_by != REPEAT]
    repeats_done = len(state.rows) - max(others, default=0)
    chosen = next_repeat(state.finalists, times, repeats_done)
    if chosen is None:
        return None
    key = chosen.trial.plan.candidate.key
    number = 1 + sum(row.key.startswith(f"{key} {REPEAT}") for row in state.rows)
    return Proposed(plan=chosen.trial.plan, proposed_by=REPEAT, key=repeat_key(key, number))


def latest_trial(state: StudyState) -> TrialRow | None:
    """The trial that ended last."""
    finished = [row for row in state.rows if row.state is TrialState.FINISHED]
    return max(finished, key=lambda row: row.attempts[-1].ended or 0.0, default=None)


def _crash_bisection(state: StudyState) -> Proposed | None:
    question = next_question(state.results.values(), state.candidates)
    if question is None:
        return None
    plan, crashed = question
    name = plan.candidate.key
    runs = sum(row.key.startswith(name) for row in state.rows)
    if runs >= MIN_CRASHES:  # repeats of this crash were lost
        return None
    key = name if not runs else f"{name} again {runs}"
    return Proposed(plan=state.completed(plan), proposed_by=f"{CRASH}{crashed}", key=key)


def _search_proposal(state: StudyState, limits: Limits) -> Proposal | None:
    return propose(state.candidates, state.tried, state.goals, limits.sampler, limits.seed, elsewhere=state.transferred_trials)


def _card_proposal(state: StudyState, latest: TrialRow | None) -> tuple[Plan, str] | None:
    if latest is None or (measurement := state.measurement_of(latest.number)) is None:
        return None
    record = Record(plan=state.plan_of(latest), measurement=measurement)
    tried = [state.plan_of(row).candidate for row in state.rows]
    return card_proposal(state.deck, state.situation, record, state.candidates, tried, state.calibration)


def _experiment(state: StudyState) -> tuple[Plan, str] | None:
    """A plan that tests a policy against the best trial, on every ``EXPERIMENT_EVERY``-th trial; None if the best was not really
    measured.
    """
    best = state.best
    if len(state.rows) % EXPERIMENT_EVERY != EXPERIMENT_EVERY - 1 or best is None or best.measurement is None:
        return None
    if best.measurement.kind is not Kind.REAL:
        return None
    record = Record(plan=best.plan, measurement=best.measurement)
    tried = [state.plan_of(row).candidate for row in state.rows]
    return untested_policy_proposal(state.deck, state.situation, record, state.records, state.candidates, tried)
