"""Constraints of a search space: what the user fixed or allowed, what the back end can run, and the values that remain for a
setting.
"""

from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property

from strategist.contract.knobs import KnobValue
from strategist.contract.settings import CONVERGENCE_SETTINGS, full_name
from strategist.frozen import frozen
from strategist.rules.backend import Backend

KnobSettings = Mapping[str, KnobValue]
Values = tuple[KnobValue, ...]


@frozen
class SpaceConstraints:
    """Constraints of a search space.

    Knobs that change convergence keep their neutral value unless they are allowed, fixed, or decided by the back end.

    fix: settings and the value that each must have.
    allow: settings that may change convergence.
    backend: the back end that runs the plan; it restricts values.
    """

    fix: KnobSettings = field(default_factory=dict)
    allow: tuple[str, ...] = ()
    backend: Backend = field(default_factory=lambda: Backend(name="any"))

    @property
    def open(self) -> frozenset[str]:
        """Names that the user fixed or allowed to change."""
        return frozenset({*self.fix, *self.allow})

    def is_offered(self, knob: str) -> bool:
        """Whether a knob that few back ends have is searched: it is fixed, or the back end says that it has it."""
        return knob in self.fix or True in self.backend.limits.get(full_name(knob), ())

    def of_settings(self) -> "SpaceConstraints":
        """The constraints with ``allow`` reduced to settings of a candidate; allowed changes of the workload restrict no space."""
        return replace(self, allow=tuple(name for name in self.allow if name in CONVERGENCE_SETTINGS))

    @cached_property
    def _found(self) -> dict[tuple[str, Values], Values]:
        return {}

    def values(self, name: str, values: Values) -> Values:
        """The subset of ``values`` that the constraints leave for the setting ``name``; cached, because every layout needs it."""
        key = name, values
        if key not in self._found:
            self._found[key] = self._open_values(name, values)
        return self._found[key]

    def _open_values(self, name: str, values: Values) -> Values:
        values = tuple(value for value in values if self._can(name, value))
        if name in self.fix:
            return tuple(value for value in values if type(value) is type(self.fix[name]) and value == self.fix[name])
        if name in CONVERGENCE_SETTINGS and name not in (*self.allow, *self.backend.by_itself):
            values = tuple(value for value in values if value == CONVERGENCE_SETTINGS[name])
        return tuple(value for value in values if self.backend.allows(full_name(name), value))

    def _can(self, name: str, value: KnobValue) -> bool:
        """Whether a value is compatible with fixed options: fullgraph needs compiled layers; async TP needs compile, sequence
        parallelism and tp > 1.
        """
        tensor = self.fix.get("async_tp") is True
        needs = {"compile": tensor or self.fix.get("fullgraph") is True, "sequence_parallel": tensor, "tp": tensor}
        return not needs.get(name, False) or (value is not True and value != 1 if name == "tp" else value is True)
