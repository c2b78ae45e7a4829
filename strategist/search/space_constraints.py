"""Constraints of a search space: what narrows a space, and the values that it leaves of a setting."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from strategist.contract.knobs import KnobValue
from strategist.contract.settings import CONVERGENCE_SETTINGS, full_name
from strategist.rules.backend import Backend

KnobSettings = Mapping[str, KnobValue]
Values = tuple[KnobValue, ...]


@dataclass(frozen=True, kw_only=True)
class SpaceConstraints:
    """What narrows a space: settings that the user fixed, knobs allowed to change convergence, and the back end.

    Knobs that change convergence keep their neutral value unless allowed, fixed, or decided by the back end.
    """

    fix: KnobSettings = field(default_factory=dict)
    allow: tuple[str, ...] = ()
    backend: Backend = field(default_factory=lambda: Backend(name="any"))

    @property
    def open(self) -> frozenset[str]:
        """Names that the user fixed or allowed to change."""
        return frozenset({*self.fix, *self.allow})

    def of_settings(self) -> "SpaceConstraints":
        """Less what is allowed to change of the workload, which narrows no space."""
        return replace(self, allow=tuple(name for name in self.allow if name in CONVERGENCE_SETTINGS))

    @cached_property
    def _found(self) -> dict[tuple[str, Values], Values]:
        return {}

    def values(self, name: str, values: Values) -> Values:
        """Those of ``values`` that are open for the setting ``name``; every layout asks for the same ones."""
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
        """Whether a value leaves fixed options what they need: a compiled layer, and tensor parallelism over the sequence."""
        tensor = self.fix.get("async_tp") is True
        needs = {"compile": tensor or self.fix.get("fullgraph") is True, "sequence_parallel": tensor, "tp": tensor}
        return not needs.get(name, False) or (value is not True and value != 1 if name == "tp" else value is True)
