"""Regions (see :mod:`strategist.lint.satisfiability`) in which cards and policies act, and of the candidates that they drop."""

from collections.abc import Sequence

from strategist.cards.card import Card, Effect, EffectKind, Policy, Setting
from strategist.expr.check import Expression
from strategist.expr.vocabulary import VOCABULARY
from strategist.lint.satisfiability import Regions, UndecidedError, decided_regions, fails, holds, intersection, is_impossible
from strategist.lint.value_sets import Domain, Span, choice_domain, comparison_spans, spans_without, universe


def card_holds(card: Card) -> Regions:
    """Regions in which all preconditions are true.

    Raises:
        UndecidedError: that cannot be decided.
    """
    return intersection(*(holds(condition.when) for condition in card.preconditions))


def card_fails(card: Card) -> Regions:
    """Regions in which a precondition is false or unknown.

    Raises:
        UndecidedError: that cannot be decided.
    """
    return [region for condition in card.preconditions for region in fails(condition.when)]


def acting_regions(card: Card, when: Expression | None) -> Regions:
    """Regions in which the card's preconditions and the condition ``when`` are true; none if that cannot be decided."""
    return decided_regions(lambda: intersection(card_holds(card), holds(when)))


def selected(settings: Sequence[Setting]) -> Regions:
    """Regions in which a candidate has all of the settings."""
    return intersection(*([{setting.path: _values(setting)}] for setting in settings))


def not_selected(settings: Sequence[Setting]) -> Regions:
    """Regions in which a candidate has another value of one of the settings, or none."""
    return [{setting.path: _other_values(setting)} for setting in settings]


def dropped_regions(card: Card, policy: Policy, effect: Effect) -> Regions:
    """Regions of the candidates that a require, forbid or set effect of a policy drops.

    Raises:
        UndecidedError: that cannot be decided.
    """
    forbids = effect.kind is EffectKind.FORBID
    selection = selected(effect.settings) if forbids else not_selected(effect.settings)
    return intersection(card_holds(card), holds(policy.when), selection)


def remaining_regions(card: Card, policy: Policy, effect: Effect) -> Regions:
    """Regions of the candidates that the effect does not drop.

    Raises:
        UndecidedError: that cannot be decided.
    """
    forbids = effect.kind is EffectKind.FORBID
    selection = not_selected(effect.settings) if forbids else selected(effect.settings)
    return [*card_fails(card), *fails(policy.when), *selection]


def changes_nothing(settings: Sequence[Setting], regions: Regions) -> bool:
    """Whether every candidate in the regions already has all of the settings."""
    fixed = all(setting.change is None for setting in settings)
    return bool(settings and regions) and fixed and all(_has_values(setting, regions) for setting in settings)


def forbids_nothing(settings: Sequence[Setting], regions: Regions) -> bool:
    """Whether no candidate in the regions has all of the settings."""
    return bool(settings and regions) and is_impossible(lambda: intersection(regions, selected(settings)))


def _has_values(setting: Setting, regions: Regions) -> bool:
    return all(setting.path in region and region[setting.path].within(setting.values) for region in regions)


def _values(setting: Setting) -> Domain:
    if setting.change is not None:
        raise UndecidedError
    domain = universe(VOCABULARY[setting.path])
    if domain.spans is None:
        return choice_domain(setting.values)
    return Domain(spans=_points(setting), integral=True)


def _other_values(setting: Setting) -> Domain:
    if setting.change is not None:
        raise UndecidedError
    domain = universe(VOCABULARY[setting.path])
    if domain.spans is None:
        choices = domain.choices - choice_domain(setting.values).choices
        return Domain(choices=choices, unknown=True)
    numbers = [value for value in setting.values if isinstance(value, int)]
    return domain.meet(Domain(spans=spans_without(numbers), integral=True)).with_unknown()


def _points(setting: Setting) -> tuple[Span, ...]:
    return tuple(span for value in setting.values if isinstance(value, int) for span in comparison_spans("==", value))
