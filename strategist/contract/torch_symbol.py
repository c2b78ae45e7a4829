"""Symbols of torch that cards refer to, as the installed torch has them."""

from dataclasses import dataclass
from enum import StrEnum


class ReferenceOutcome(StrEnum):
    """``unknown``: it cannot be told without running more than an import; never a reason to complain."""

    FOUND = "found"
    NO_SYMBOL = "no_symbol"
    NO_PARAMETER = "no_parameter"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A symbol and a parameter of it, or none; where its source lies, from the folder that holds torch; or names that come near."""

    symbol: str
    parameter: str = ""
    outcome: ReferenceOutcome
    file: str = ""
    first_line: int | None = None
    last_line: int | None = None
    near: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class References:
    """All that was looked for, in that order."""

    torch_version: str
    references: tuple[Reference, ...]
