"""What trials teach: a calibration with its honest errors, evidence for the cards, and what the cards would try next."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from strategist.cards.deck import Deck
from strategist.contract.knobs import Candidate
from strategist.contract.measurement import Outcome
from strategist.contract.plan import Plan
from strategist.cost.calibration import Calibration
from strategist.cost.fit import fit
from strategist.expr.columns import row_of
from strategist.planner import price_candidate
from strategist.profiles.history import Record
from strategist.profiles.situation import Situation
from strategist.rules.evidence import Evidence, evidence
from strategist.rules.react import react
from strategist.search.facts import observed_facts, situation_facts
from strategist.search.settings import Settings, distance, settings
from strategist.tuner.result import Errors

TELLING = (Outcome.OK, Outcome.OOM, Outcome.TIMEOUT, Outcome.NAN, Outcome.CRASH)
"""Outcomes in which the plan had its chance."""

EXPERIMENTS = 300
"""So many of the best predicted plans are considered for an experiment on a card; each costs about a millisecond."""

SIDE_CHANGES = 1
"""Settings that may change along with those that a card wants changed: twice the tp leaves half the dp_shard."""


def errors(situation: Situation, deck: Deck, records: Sequence[Record], calibration_of: Callable[[int], Calibration]) -> Errors:
    """Errors over the records that ended well, each plan priced anew by ``calibration_of`` the index of its record."""
    steps, peaks = [], []
    for index, record in enumerate(records):
        measured = record.measurement
        if measured.outcome is Outcome.OK and measured.step_seconds and measured.peak_memory_bytes:
            calibration = calibration_of(index)
            plan = price_candidate(situation, record.plan.candidate, deck=deck, calibration=calibration)
            steps.append(abs(plan.estimate.step_seconds / measured.step_seconds - 1))
            peaks.append(abs(plan.estimate.memory.allocated / max(measured.peak_memory_bytes) - 1))
    if not steps:
        return Errors(trials=0, step_seconds=None, peak_memory=None)
    return Errors(trials=len(steps), step_seconds=statistics.median(steps), peak_memory=statistics.median(peaks))


def errors_left_out(situation: Situation, deck: Deck, records: Sequence[Record], prior: Calibration) -> Errors:
    """Errors on each record by a calibration fitted to all others."""
    return errors(situation, deck, records, lambda index: fit([*records[:index], *records[index + 1 :]], prior))


def evidence_for(deck: Deck, situation: Situation, records: Sequence[Record]) -> tuple[Evidence, ...]:
    """For and against the cards; what failed for reasons outside the plan says nothing."""
    known = _facts(situation)
    return evidence(
        deck,
        [
            ({**known, **_row(situation, record.plan.candidate)}, record.measurement.step_seconds)
            for record in records
            if record.measurement.outcome in TELLING
        ],
    )


def reaction(
    deck: Deck, situation: Situation, record: Record, ranked: Sequence[Plan], tried: Sequence[Candidate]
) -> tuple[Plan, str] | None:
    """The first thing that a card would try after the record, if it is in ``ranked`` and not ``tried``, and the policy's name."""
    known = {**_facts(situation), **observed_facts(record.measurement)}
    before = settings(record.plan.candidate)
    old = [settings(candidate) for candidate in tried]
    for proposal in react(deck, known, _row(situation, record.plan.candidate)):
        reached = [_side_changes(own, before, proposal.changes) for own in old]
        nearest = min(reached, default=SIDE_CHANGES + 1)
        for plan in ranked:
            if _side_changes(settings(plan.candidate), before, proposal.changes) < min(nearest, SIDE_CHANGES + 1):
                return plan, f"card:{proposal.card}/{proposal.policy}"
    return None


def experiment(
    deck: Deck, situation: Situation, best: Record, records: Sequence[Record], ranked: Sequence[Plan], tried: Sequence[Candidate]
) -> tuple[Plan, str] | None:
    """The best predicted untried plan that, beside the best measured one, puts to the test a policy on which no trial spoke yet."""
    known, old = _facts(situation), [settings(candidate) for candidate in tried]
    settled = {(item.card, item.policy) for item in evidence_for(deck, situation, records)}
    standard = ({**known, **_row(situation, best.plan.candidate)}, 1.0)
    for plan in ranked[:EXPERIMENTS]:
        if settings(plan.candidate) in old:
            continue
        pair = evidence(deck, [standard, ({**known, **_row(situation, plan.candidate)}, 2.0)])
        if told := next((item for item in pair if (item.card, item.policy) not in settled), None):
            return plan, f"test:{told.card}/{told.policy}"
    return None


def _side_changes(own: Settings, before: Settings, changes: Settings) -> int:
    """Settings changed besides those that the card wants changed; too many where one of those is missing."""
    if any(own.get(name) != value for name, value in changes.items()):
        return SIDE_CHANGES + 1
    return distance(own, {**before, **changes})


def _row(situation: Situation, candidate: Candidate) -> dict[str, Any]:
    return row_of(candidate, candidate.accumulation(situation.request.workload))


def _facts(situation: Situation) -> dict[str, Any]:
    return situation_facts(situation.model, situation.cluster, situation.request.workload)
