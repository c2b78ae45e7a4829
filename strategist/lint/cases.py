"""Runs a card's own tests: each case is evaluated with that card alone, without a planner.

``given: {facts: {...}, candidate: {...}}`` holds facts by full name (numbers may have units: ``24 GiB``) and settings of one
candidate, bare or in full. Degrees default to 1 and knobs to their defaults; ``world_size``, ``data_ranks``, ``fsdp_ranks`` and
``model_shards`` follow from the degrees, ``accumulation`` from ``workload.global_batch`` if that is given. Facts that are not
given are unknown. ``expect`` is ``forbidden`` or ``allowed``; ``{reasons: [ids]}``, the policies and risks that give a reason,
in order; or ``{proposes: {...}}``, the changes after a trial.
"""

from collections.abc import Iterator
from typing import Any

from strategist.cards.card import Card, Case, EffectKind
from strategist.cards.deck import Deck
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.settings import with_settings
from strategist.expr.columns import row_of, table
from strategist.expr.vocabulary import SETTINGS
from strategist.rules.observe_policies import observed_proposals
from strategist.rules.policy_evaluation import judge, reasons


def case_row(case: Case) -> dict[str, Any]:
    """The case's candidate with every name of the vocabulary."""
    given = {name.partition(".")[2]: value for name, value in case.candidate.items() if name in SETTINGS}
    candidate = with_settings(Candidate(layout=Layout(), knobs=Knobs()), given)
    batch = case.facts.get("workload.global_batch", 1)
    accumulation = max(1, batch // (candidate.layout.data_ranks * candidate.knobs.micro_batch))
    return row_of(candidate, accumulation) | case.candidate


def failures(card: Card, case: Case) -> list[str]:
    """Results of the card that differ from the case's expectation; empty if the case passes."""
    deck, row = Deck((card,)), case_row(case)
    found = []
    if case.verdict:
        judgement = judge(deck, case.facts, table([row, *_defaults(card, row)]))
        verdict = "allowed" if judgement.allowed[0] else "forbidden"
        if verdict != case.verdict:
            found.append(f"the candidate is {verdict}, not {case.verdict}")
    if case.reasons is not None:
        given_reasons = tuple(reason.policy for reason in reasons(deck, case.facts, row))
        if given_reasons != case.reasons:
            found.append(f"{list(given_reasons)} act, not {list(case.reasons)}")
    if case.proposes is not None:
        proposed = {
            name: value for proposal in observed_proposals(deck, case.facts, row) for name, value in proposal.changes.items()
        }
        if proposed != case.proposes:
            found.append(f"{proposed} is proposed, not {case.proposes}")
    return found


def _defaults(card: Card, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The candidate with each of the card's defaults applied; without these rows nothing would be left, and defaults give way."""
    for policy in card.policies:
        for effect in policy.effects:
            if effect.kind is EffectKind.SET and all(setting.values for setting in effect.settings):
                yield row | {setting.path: setting.values[0] for setting in effect.settings}
