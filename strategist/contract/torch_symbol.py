"""Torch symbols that cards cite, resolved against the installed torch."""

from enum import StrEnum

from strategist.frozen import frozen


class ReferenceOutcome(StrEnum):
    """Result of the lookup. ``unknown``: cannot be determined by an import alone; it is never reported as an error."""

    FOUND = "found"
    NO_SYMBOL = "no_symbol"
    NO_PARAMETER = "no_parameter"
    UNKNOWN = "unknown"


@frozen
class Reference:
    """A cited symbol, optionally one of its parameters, and the result of the lookup.

    ``file`` and its lines: its source, relative to the folder that contains torch. ``near``: similar names where it was not found.
    """

    symbol: str
    parameter: str = ""
    outcome: ReferenceOutcome
    file: str = ""
    first_line: int | None = None
    last_line: int | None = None
    near: tuple[str, ...] = ()


@frozen
class References:
    """Results of the lookups, in the order of the request."""

    torch_version: str
    references: tuple[Reference, ...]
