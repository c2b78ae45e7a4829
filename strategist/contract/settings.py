"""Settings by bare name: every degree, knob and option, whichever part of a candidate holds it."""

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

from strategist.contract.knobs import CHOICES, CONVERGENCE_KNOBS, KNOB_NAMES, Candidate, KnobValue
from strategist.contract.layout import AXES, DEGREES
from strategist.contract.options import CONVERGENCE_OPTIONS, OPTION_CHOICES, OPTION_MINIMA, OPTION_NAMES
from strategist.errors import InputError

AXIS_ORDER = "axis_order"
AXIS_ORDERS = (".".join(AXES), "dp_replicate.pp.dp_shard.cp.tp")
"""Orders of the mesh axes that the planner chooses from: pipeline stages, or replicas, across the slowest links."""

PARTS: dict[str, tuple[str, ...]] = {"layout": (*DEGREES, AXIS_ORDER), "knobs": KNOB_NAMES, "options": OPTION_NAMES}
"""The settings of each part of a candidate."""

SETTING_NAMES = tuple(name for names in PARTS.values() for name in names)
SETTING_CHOICES: Mapping[str, tuple[KnobValue, ...]] = {AXIS_ORDER: AXIS_ORDERS, **CHOICES, **OPTION_CHOICES}
"""Allowed values of settings with a closed set of values; all other settings are whole numbers."""

CONVERGENCE_SETTINGS: Mapping[str, KnobValue] = {**CONVERGENCE_KNOBS, **CONVERGENCE_OPTIONS}
"""Settings that can change the result of training, with the value that doesn't."""

_PART = {name: part for part, names in PARTS.items() for name in names}
_FULL_NAMES = tuple(f"{_PART[name]}.{name}" for name in SETTING_NAMES)
_values = attrgetter(*_FULL_NAMES)


def full_name(name: str) -> str:
    """Full name of a setting: ``layout.tp`` for ``tp``."""
    return f"{_PART[name]}.{name}"


def least(name: str) -> int:
    """Smallest value of a setting that is a whole number."""
    return OPTION_MINIMA.get(name, 1)


def check_setting(name: str, value: object) -> None:
    """Checks that a setting of this bare name exists and allows the value.

    Raises:
        InputError: there is no such setting, or the value is not allowed.
    """
    if name not in SETTING_NAMES:
        raise InputError(f"fix {name}", "is not a setting", f"take one of {', '.join(SETTING_NAMES)}")
    shown = f"fix {name}={value!r}"
    if (choices := SETTING_CHOICES.get(name)) is None:
        if isinstance(value, bool) or not isinstance(value, int) or value < least(name):
            raise InputError(shown, f"a whole number from {least(name)} on is needed", f"write e.g. {name}={max(2, least(name))}")
    elif not any(type(value) is type(choice) and value == choice for choice in choices):
        raise InputError(shown, "is not a value of it", f"choose one of {', '.join(map(repr, choices))}")


def value_of(candidate: Candidate, name: str) -> Any:
    """Value of a setting by bare name; the order of the axes as one string."""
    value = getattr(getattr(candidate, _PART[name]), name)
    return ".".join(value) if name == AXIS_ORDER else value


def with_settings(candidate: Candidate, values: Mapping[str, KnobValue]) -> Candidate:
    """The candidate with other values of some settings, by bare name."""
    changed: dict[str, dict[str, Any]] = {part: {} for part in PARTS}
    for name, value in values.items():
        changed[_PART[name]][name] = tuple(str(value).split(".")) if name == AXIS_ORDER else value
    parts = {part: replace(getattr(candidate, part), **names) for part, names in changed.items() if names}
    return replace(candidate, **parts)


def settings_of(candidate: Candidate) -> dict[str, Any]:
    """Values of all settings by full name."""
    values = dict(zip(_FULL_NAMES, _values(candidate), strict=True))
    values[full_name(AXIS_ORDER)] = value_of(candidate, AXIS_ORDER)
    return values
