"""Policy matching: where a policy's condition holds, and which candidates its settings select; for one candidate or a table."""

import numpy as np

from strategist.cards.card import Card, Effect, EffectKind, Policy, Setting
from strategist.contract.knobs import KnobValue
from strategist.contract.settings import least
from strategist.expr.columns import Columns
from strategist.expr.evaluate import Facts, Mask, is_anywhere, scalar, truth
from strategist.expr.vocabulary import VOCABULARY, same_choice

Where = bool | Mask
"""Candidates: one bool for all of them, or a mask."""


def holds(card: Card, facts: Facts, columns: Columns) -> Where:
    """Candidates for which every precondition of the card is true, not unknown."""
    result: Where = True
    for condition in card.preconditions:
        if condition.when is not None:
            result = result & truth(condition.when, facts, columns)
            if not is_anywhere(result):
                return False
    return result


def acts(policy: Policy, facts: Facts, columns: Columns) -> Where:
    """Candidates for which the policy's own condition is true, not unknown."""
    return True if policy.when is None else truth(policy.when, facts, columns)


def selects(effect: Effect, columns: Columns) -> Where:
    """Candidates that have all of the effect's settings; all candidates where it has none."""
    result: Where = True
    for setting in effect.settings:
        result = result & matches(setting, columns)
    return result


def matches(setting: Setting, columns: Columns) -> Where:
    """The candidates that have one of the setting's values. False where the table has no such column."""
    column = columns.values.get(setting.path)
    if column is None:
        return False
    choices = columns.categories.get(setting.path)
    found: Mask = np.zeros(len(column), dtype=np.bool_)
    for value in setting.values if choices is None else _codes(setting, choices):
        found |= column == value
    return found


def _codes(setting: Setting, choices: tuple[KnobValue, ...]) -> list[int]:
    return [code for code, choice in enumerate(choices) if any(same_choice(choice, value) for value in setting.values)]


def preconditions_hold(card: Card, facts: Facts) -> bool:
    """Whether every precondition of the card is true, not unknown; ``facts`` include the candidate's values."""
    return all(condition.when is None or scalar(condition.when, facts) is True for condition in card.preconditions)


def condition_holds(policy: Policy, facts: Facts) -> bool:
    """Whether the policy's own condition is true, not unknown; ``facts`` include the candidate's values."""
    return policy.when is None or scalar(policy.when, facts) is True


def condition_names(card: Card, policy: Policy) -> tuple[str, ...]:
    """Vocabulary names in the conditions of the card and of the policy, each once."""
    conditions = [*(condition.when for condition in card.preconditions), policy.when]
    named = set().union(*(condition.names for condition in conditions if condition is not None))
    return tuple(name for name in VOCABULARY if name in named)


def affected_settings(card: Card, policy: Policy) -> set[str]:
    """Full names of the settings that a policy affects.

    A preference for whole candidates affects those control points of its card on which its condition depends.
    """
    affected = {setting.path for effect in policy.effects for setting in effect.settings}
    if any(effect.kind is EffectKind.PREFER and not effect.settings for effect in policy.effects):
        affected |= {point.path for point in card.control_points} & {*condition_names(card, policy)}
    return affected


def selects_row(effect: Effect, row: Facts) -> bool:
    """Whether the candidate has all of the effect's settings. ``row`` also has the facts that computed settings depend on."""
    return all(
        any(same_choice(row.get(setting.path), value) for value in requested_values(setting, row)) for setting in effect.settings
    )


def requested_values(setting: Setting, row: Facts) -> tuple[KnobValue, ...]:
    """Values of a setting; a computed one is evaluated. Empty where the result is unknown, not a whole number, or too small."""
    if setting.change is None:
        return setting.values
    value = scalar(setting.change, row)
    whole = value is not None and value == value // 1 and value >= least(setting.path.partition(".")[2])
    return (int(value),) if whole else ()
