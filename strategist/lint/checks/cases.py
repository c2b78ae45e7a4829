"""Checks of a card's own tests."""

from collections.abc import Iterator

from strategist.cards.card import LAWS, Card, Policy
from strategist.contract.diagnostic import Diagnostic, Level
from strategist.lint.cases import case_row, failures
from strategist.lint.registry import Subject, check, finding
from strategist.rules.policy_matching import condition_holds, preconditions_hold


@check("CARD011", Level.ERROR, "A stable card has a case with an effect and one without.")
def stable_card_has_cases(subject: Subject) -> Iterator[Diagnostic]:
    """A stable card has fewer than two cases.

    Why: One case shows that the card acts, another that it does not act elsewhere; without them a card breaks unnoticed.
    Do: add a case with an effect and one without
    Bad:
        cases: []
    Good:
        cases:
          - {given: {candidate: {tp: 4}}, expect: forbidden}
          - {given: {candidate: {tp: 1}}, expect: allowed}
    """
    if subject.stable and len(subject.stable.cases) < 2:
        yield finding(subject, "CARD011", f"stable card {subject.stable.id} has {len(subject.stable.cases)} of 2 cases", ("cases",))


@check("CARD012", Level.ERROR, "The cases of a card pass.")
def cases_pass(subject: Subject) -> Iterator[Diagnostic]:
    """The card's result differs from what its case expects.

    Why: Either the rule or the expectation is wrong, and plans follow the rule.
    Do: correct the policy, or what the case gives and expects
    Bad:
        - {given: {facts: {model.layers: 9}, candidate: {recompute: none}}, expect: allowed}   # the policy forbids it
    Good:
        - {given: {facts: {model.layers: 9}, candidate: {recompute: none}}, expect: forbidden}
    """
    for index, case in enumerate(subject.sound.cases if subject.sound else ()):
        for failure in failures(subject.sound, case) if subject.sound else ():
            yield finding(subject, "CARD012", f"case {index + 1} fails: {failure}", ("cases", index))


@check("CARD039", Level.WARNING, "Each law of a stable card has an effect in one of its cases.")
def laws_have_cases(subject: Subject) -> Iterator[Diagnostic]:
    """No case of the card makes a policy with a hard effect act: its condition holds in none of them.

    Why: Candidates that a law drops are never priced; an untested law may drop all of them, or none.
    Do: add a case in which it acts, with expect: forbidden
    Bad:
        cases: [{given: {candidate: {tp: 1}}, expect: allowed}]   # the policy acts when tp > 8
    Good:
        cases: [{given: {candidate: {tp: 16}}, expect: forbidden}, {given: {candidate: {tp: 1}}, expect: allowed}]
    """
    card = subject.stable
    for index, policy in enumerate(card.policies if card and card.cases else ()):
        if card and any(effect.kind in LAWS for effect in policy.effects) and not _acts_in_a_case(card, policy):
            yield finding(subject, "CARD039", f"no case makes policy {policy.id} act", ("policies", index, "id"))


def _acts_in_a_case(card: Card, policy: Policy) -> bool:
    rows = ({**case.facts, **case_row(case)} for case in card.cases)
    return any(preconditions_hold(card, row) and condition_holds(policy, row) for row in rows)
