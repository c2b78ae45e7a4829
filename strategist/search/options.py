"""Options of a chosen candidate, resolved in order by the cards."""

from collections.abc import Mapping, Sequence
from typing import Any

from strategist.cards.deck import Deck
from strategist.contract.knobs import Candidate, Knobs, KnobValue
from strategist.contract.layout import Layout
from strategist.contract.model import ModelShape
from strategist.contract.options import OPTION_CHOICES, OPTION_NAMES, Options
from strategist.contract.settings import SETTING_CHOICES, full_name, with_settings
from strategist.contract.workload import Workload
from strategist.expr.columns import row_of
from strategist.rules.resolve_options import resolve
from strategist.search.space_constraints import SpaceConstraints

_DEFAULTS = Options()

_FREE = Candidate(layout=Layout(tp=2), knobs=Knobs(sequence_parallel=True, compile=True))
"""A candidate for which no law between options and other settings rules an option out."""


def forced_options(constraints: SpaceConstraints) -> dict[str, KnobValue]:
    """Options with a single possible value in all candidates, by full name: fixed by the user, or left by the back end and the
    laws.
    """
    fixed = {name: value for name, value in constraints.fix.items() if name in OPTION_NAMES}
    found: dict[str, tuple[KnobValue, ...]] = {name: (value,) for name, value in fixed.items()}
    for name in OPTION_CHOICES.keys() - fixed.keys():
        found[name] = _open_values(name, getattr(_DEFAULTS, name), _FREE, fixed, constraints)
    return {full_name(name): values[0] for name, values in found.items() if len(values) == 1}


def with_options(
    candidate: Candidate,
    model: ModelShape,
    workload: Workload,
    *,
    deck: Deck,
    facts: Mapping[str, Any],
    constraints: SpaceConstraints,
    names: Sequence[str] = OPTION_NAMES,
) -> Candidate:
    """The candidate with its options (or those in ``names``) resolved in the order of their definition.

    An option without effect is skipped, and one with a single possible value takes it. ``facts`` include the candidate's estimate.
    """
    row = {**facts, **row_of(candidate, candidate.accumulation(workload))}
    values: dict[str, KnobValue] = {name: value for name, value in constraints.fix.items() if name in OPTION_NAMES}
    for name in names:
        default = getattr(_DEFAULTS, name)
        if name in constraints.fix:
            value = constraints.fix[name]
        elif not candidate.acts(name, model):
            continue
        else:
            runnable_values = _runnable(name, _open_values(name, default, candidate, values, constraints), row, constraints)
            value = resolve(deck, row, full_name(name), runnable_values)
            value = value if constraints.backend.allows(full_name(name), value) else default
        values[name] = row[full_name(name)] = value
    return with_settings(candidate, values)


def _open_values(
    name: str, default: KnobValue, candidate: Candidate, option_values: Mapping[str, KnobValue], constraints: SpaceConstraints
) -> tuple[KnobValue, ...]:
    """Values that constraints and laws leave; the default comes first."""
    choices = (default, *(value for value in SETTING_CHOICES.get(name, ()) if value != default))
    found = constraints.values(name, choices)
    if found in ((), (default,)):
        return (default,)
    return tuple(value for value in found if not _broken(candidate, {**option_values, name: value})) or (default,)


def _runnable(
    name: str, values: tuple[KnobValue, ...], row: Mapping[str, Any], constraints: SpaceConstraints
) -> tuple[KnobValue, ...]:
    """Values that the back end runs together with the other settings; all values if it runs none of them."""
    if len(values) == 1:
        return values
    return tuple(value for value in values if constraints.backend.accepts(full_name(name), value, row)) or values


def _broken(candidate: Candidate, values: Mapping[str, KnobValue]) -> bool:
    options, knobs = Options(**{**vars(candidate.options), **dict[str, Any](values)}), candidate.knobs
    return any(options.broken_laws(candidate.layout, sequence_parallel=knobs.sequence_parallel, compiled=knobs.compile))
