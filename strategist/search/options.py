"""Options of a chosen candidate: one after the other, each as the cards would have it."""

from collections.abc import Mapping, Sequence
from typing import Any

from strategist.cards.deck import Deck
from strategist.contract.knobs import Candidate, KnobValue
from strategist.contract.model import ModelShape
from strategist.contract.options import OPTION_NAMES, Options
from strategist.contract.settings import SETTING_CHOICES, full_name, with_settings
from strategist.contract.workload import Workload
from strategist.expr.columns import row_of
from strategist.rules.settle import settle
from strategist.search.space import Bounds

_DEFAULTS = Options()


def with_options(
    chosen: Candidate,
    model: ModelShape,
    workload: Workload,
    *,
    deck: Deck,
    facts: Mapping[str, Any],
    bounds: Bounds,
    names: Sequence[str] = OPTION_NAMES,
) -> Candidate:
    """The candidate with its options, or those of some ``names`` alone, settled in the order of their definition; ``facts`` include
    its estimate.

    An option that has nothing to act on, or of which the user or the back end leaves one value, takes no part.
    """
    row = {**facts, **row_of(chosen, chosen.accumulation(workload))}
    values: dict[str, KnobValue] = {name: value for name, value in bounds.fix.items() if name in OPTION_NAMES}
    for name in names:
        default = getattr(_DEFAULTS, name)
        if name in bounds.fix:
            value = bounds.fix[name]
        elif not chosen.acts(name, model):
            continue
        else:
            value = settle(deck, row, full_name(name), _open(name, default, chosen, values, bounds))
            value = value if bounds.backend.allows(full_name(name), value) else default
        values[name] = row[full_name(name)] = value
    return with_settings(chosen, values)


def _open(
    name: str, default: KnobValue, chosen: Candidate, settled: Mapping[str, KnobValue], bounds: Bounds
) -> tuple[KnobValue, ...]:
    """Values that bounds and laws leave, the default first."""
    choices = (default, *(value for value in SETTING_CHOICES.get(name, ()) if value != default))
    found = bounds.values(name, choices)
    return tuple(value for value in found if not _broken(chosen, {**settled, name: value})) or (default,)


def _broken(chosen: Candidate, values: Mapping[str, KnobValue]) -> bool:
    return bool(with_settings(chosen, values).option_violations())
