"""Warnings and proposals of cards after a trial, and trials that test a card's policy."""

from collections.abc import Sequence
from typing import Any

from strategist.cards.deck import Deck
from strategist.contract.knobs import Candidate
from strategist.contract.plan import Plan, Reason
from strategist.contract.settings import settings_of, with_settings
from strategist.cost.calibration import NEUTRAL, Calibration
from strategist.errors import InputError
from strategist.expr.columns import row_of, table
from strategist.planning.planner import price_candidate
from strategist.profiles.history import Record
from strategist.profiles.situation import Situation
from strategist.programs.backends import load_backend
from strategist.rules.evidence import Trial, evidence, proposer
from strategist.rules.observe_policies import observed_proposals, warnings
from strategist.rules.policy_evaluation import judge
from strategist.search.facts import situation_facts
from strategist.search.settings import Settings
from strategist.search.space_constraints import SpaceConstraints
from strategist.tuner.card_evidence import facts_after_trial, trials_of

MAX_EXPERIMENT_PLANS = 300
"""Number of best predicted plans that are considered for an experiment on a card; each takes about 1 ms."""

SIDE_CHANGES = 1
"""Number of settings that may change besides those that a card changes: twice the tp leaves half the dp_shard."""


def card_warnings(deck: Deck, record: Record) -> tuple[Reason, ...]:
    """Warnings of the cards after a trial."""
    return warnings(deck, facts_after_trial(record), {})


def card_proposal(
    deck: Deck,
    situation: Situation,
    record: Record,
    ranked: Sequence[Plan],
    tried: Sequence[Candidate],
    calibration: Calibration = NEUTRAL,
) -> tuple[Plan, str] | None:
    """The first untried proposal of a card after the record, and the name of the policy.

    The plan is the best of ``ranked`` that has the proposed changes and at most ``SIDE_CHANGES`` others; without one, the
    record's own candidate with the changes, if it is allowed.
    """
    facts = facts_after_trial(record)
    before = settings_of(record.plan.candidate)
    tried_settings = [settings_of(candidate) for candidate in tried]
    for proposal in observed_proposals(deck, facts, {}):
        side_changes = [_side_changes(settings, before, proposal.changes) for settings in tried_settings]
        limit = min([*side_changes, SIDE_CHANGES + 1])
        closer_plans = (plan for plan in ranked if _side_changes(settings_of(plan.candidate), before, proposal.changes) < limit)
        plan = next(closer_plans, None)
        if plan is None and limit > SIDE_CHANGES:  # no similar candidate was tried
            plan = _changed(deck, situation, record.plan.candidate, proposal.changes, calibration)
        if plan is not None:
            return plan, proposer(proposal.card, proposal.policy)
    return None


def _changed(deck: Deck, situation: Situation, candidate: Candidate, changes: Settings, calibration: Calibration) -> Plan | None:
    """The candidate with the changes, priced; None if the request, a law, the back end, a card or the memory rules it out."""
    request = situation.request
    constraints = SpaceConstraints(fix=request.fix, allow=request.allow, backend=load_backend(request.backend))
    named = {path.partition(".")[2]: value for path, value in changes.items()}
    if any(constraints.values(name, (value,)) != (value,) for name, value in named.items()):
        return None
    changed = with_settings(candidate, named)
    try:
        plan = price_candidate(situation, changed, deck=deck, calibration=calibration)
    except InputError:  # a card's proposal may break a law that the card does not check
        return None
    facts, host = _facts(situation), situation.cluster.host_memory_bytes
    runs = constraints.backend.runs(changed, situation.model, request.workload, facts)
    allowed = judge(deck, facts, table([_row(situation, changed)]), fixed=frozenset(changes)).allowed[0]
    fits_host = host is None or plan.estimate.host_memory_bytes_per_node <= host
    return plan if allowed and runs and plan.estimate.fits and fits_host else None


def untested_policy_proposal(
    deck: Deck, situation: Situation, best: Record, records: Sequence[Record], ranked: Sequence[Plan], tried: Sequence[Candidate]
) -> tuple[Plan, str] | None:
    """The best predicted untried plan that, compared with the best measured one, tests a policy without evidence so far; with
    its proposer.
    """
    facts, tried_settings = _facts(situation), [settings_of(candidate) for candidate in tried]
    tested_policies = {(item.card, item.policy) for item in evidence(deck, trials_of(records))}
    standard = Trial(known={**facts, **_row(situation, best.plan.candidate)}, seconds=1.0)
    for plan in ranked[:MAX_EXPERIMENT_PLANS]:
        if settings_of(plan.candidate) in tried_settings:
            continue
        pair = evidence(deck, [standard, Trial(known={**facts, **_row(situation, plan.candidate)}, seconds=2.0)])
        if untested := next((item for item in pair if (item.card, item.policy) not in tested_policies), None):
            return plan, f"test:{untested.card}/{untested.policy}"
    return None


def _side_changes(settings: Settings, before: Settings, changes: Settings) -> int:
    """Number of settings changed besides those that the card changes; above ``SIDE_CHANGES`` if one of the card's changes is
    missing.

    Options do not count: cards resolve them for each plan.
    """
    if any(settings.get(name) != value for name, value in changes.items()):
        return SIDE_CHANGES + 1
    return sum(settings[name] != value for name, value in {**before, **changes}.items() if not name.startswith("options."))


def _row(situation: Situation, candidate: Candidate) -> dict[str, Any]:
    return row_of(candidate, candidate.accumulation(situation.request.workload))


def _facts(situation: Situation) -> dict[str, Any]:
    return situation_facts(situation.model, situation.cluster, situation.request.workload)
