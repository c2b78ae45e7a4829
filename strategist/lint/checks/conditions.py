"""Checks of conditions that are constant, never hold, or use values that are not known yet."""

from collections.abc import Iterator
from functools import partial

from strategist.cards.card import LAWS, Card, Effect, EffectKind, Phase, Policy
from strategist.contract.diagnostic import Diagnostic, Level
from strategist.expr.check import Expression
from strategist.expr.vocabulary import ESTIMATE, OBSERVED
from strategist.files.yaml_file import KeyPath
from strategist.lint.constant_conditions import constant_part
from strategist.lint.regions import card_holds, remaining_regions, selected
from strategist.lint.registry import Subject, check, finding
from strategist.lint.satisfiability import EVERYWHERE, Regions, holds, intersection, is_impossible


@check("CARD013", Level.WARNING, "A condition can be true and can be false.")
def condition_varies(subject: Subject) -> Iterator[Diagnostic]:
    """A part of a condition has the same value for every request and candidate.

    Why: It is a mistake: as written, the part decides nothing, or everything.
    Do: compare with a value inside the name's range, or drop the part
    Bad:
        when: layout.tp >= 1 and model.layers > 8
    Good:
        when: layout.tp > 1 and model.layers > 8
    """
    for expression, key_path in _conditions(subject):
        constant = constant_part(expression)
        if constant is not None:
            message = f"{_on_one_line(expression)!r} has a part that is always {str(constant[1]).lower()}"
            yield finding(subject, "CARD013", message, key_path, offset=constant[0])


@check("CARD033", Level.WARNING, "The parts of a condition can hold together, and can fail together.")
def condition_is_satisfiable(subject: Subject) -> Iterator[Diagnostic]:
    """Each part of a condition can vary, but the whole condition is always false, or always true.

    Why: A condition that never holds makes a policy that never acts; one that always holds need not be written.
    Do: correct the bound or value that excludes the other, or leave when out for a policy that always acts
    Bad:
        when: layout.tp > 4 and layout.tp < 2
    Good:
        when: layout.tp > 2 and layout.tp < 4
    """
    for expression, key_path in _conditions(subject):
        if constant_part(expression) is None:
            always_false, always_true = (is_impossible(partial(holds, expression, value)) for value in (True, False))
            if always_false or always_true:
                message = f"{_on_one_line(expression)!r} is always {'false' if always_false else 'true'}"
                yield finding(subject, "CARD033", message, key_path)


@check("CARD034", Level.WARNING, "Every policy can have an effect.")
def policy_is_reachable(subject: Subject) -> Iterator[Diagnostic]:
    """The condition of a policy excludes the card's preconditions, or an earlier law of the card drops all that it could act on.

    Why: The policy never acts, although the card reads as if it did.
    Do: change the condition, the preconditions or the order, or drop the policy
    Bad:
        preconditions: [{when: layout.pp > 1}]   # and a policy with when: layout.pp == 1
    Good:
        preconditions: [{when: layout.pp > 1}]   # and a policy with when: layout.pp > 4
    """
    card = subject.sound
    for index, policy in enumerate(card.policies if card else ()):
        if card and (reason := _unreachable_reason(card, index, policy)):
            key_path: KeyPath = ("policies", index, "when") if policy.when else ("policies", index)
            yield finding(subject, "CARD034", f"policy {policy.id} never acts: {reason}", key_path)


def _unreachable_reason(card: Card, index: int, policy: Policy) -> str:
    if is_impossible(lambda: holds(policy.when)) or is_impossible(lambda: card_holds(card)):
        return ""  # reported by another check
    if is_impossible(lambda: intersection(card_holds(card), holds(policy.when))):
        return "its condition excludes the card's preconditions"
    for effect in policy.effects if policy.phase is Phase.PLAN else ():
        for earlier in card.policies[:index]:
            if any(_drops_everything(card, policy, effect, earlier, law) for law in earlier.effects if law.kind in LAWS):
                return f"{earlier.id} drops every candidate that it applies to"
    return ""


def _drops_everything(card: Card, policy: Policy, effect: Effect, earlier: Policy, law: Effect) -> bool:
    """Whether a law of the card keeps no candidate that an effect of a later policy could act on."""

    def remaining() -> Regions:
        effect_regions = selected(effect.settings) if effect.kind is EffectKind.FORBID else EVERYWHERE
        return intersection(card_holds(card), holds(policy.when), effect_regions, remaining_regions(card, earlier, law))

    return is_impossible(remaining)


@check("CARD014", Level.ERROR, "A policy uses only values that are known in its phase.")
def values_known_in_phase(subject: Subject) -> Iterator[Diagnostic]:
    """A policy that acts before a trial uses observed values, or one that acts before pricing uses estimated values.

    Why: A value that is not known yet makes the condition unknown, so the policy never acts. Options are resolved after pricing.
    Do: write phase: observe, or use facts of the request and settings of the candidate
    Bad:
        - {id: law, when: observed.mfu < 0.2, forbid: {recompute: full}, because: ...}
    Good:
        - {id: after, phase: observe, when: observed.mfu < 0.2, try: {recompute: none}, because: ...}
    """
    for index, policy in enumerate(subject.sound.policies if subject.sound else ()):
        unknown = {OBSERVED} if _acts_on_options(policy) else {OBSERVED, ESTIMATE}
        unavailable = unknown & policy.when.phases if policy.when and _affects_candidates(policy) else set()
        if unavailable:
            message = f"policy {policy.id} acts before a plan is priced and uses {' and '.join(sorted(unavailable))} values"
            yield finding(subject, "CARD014", message, ("policies", index, "when"))


def _affects_candidates(policy: Policy) -> bool:
    return policy.phase is Phase.PLAN and any(effect.kind is not EffectKind.WARN for effect in policy.effects)


def _acts_on_options(policy: Policy) -> bool:
    """Whether all settings that the policy acts on are options."""
    settings = [setting for effect in policy.effects for setting in effect.settings]
    return bool(settings) and all(setting.path.startswith("options.") for setting in settings)


def _conditions(subject: Subject) -> Iterator[tuple[Expression, KeyPath]]:
    card = subject.sound
    for section in ("preconditions", "policies", "risks") if card else ():
        for index, entry in enumerate(getattr(card, section)):
            if entry.when is not None:
                yield entry.when, (section, index, "when")


def _on_one_line(expression: Expression) -> str:
    return " ".join(expression.text.split())
