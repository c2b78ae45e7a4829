"""Environment of the linter: facts that card files do not contain (installed torch, results of examples), found elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class SymbolState(StrEnum):
    """What became of the search for a symbol and its parameter."""

    FOUND = "found"
    NO_SYMBOL = "no_symbol"
    NO_PARAMETER = "no_parameter"


class ExampleOutcome(StrEnum):
    """What became of an example."""

    PASSED = "passed"
    FAILED = "failed"
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True)
class ReferenceState:
    """One symbol (and parameter) in the installed torch: where its source lies, or the names that come near it.

    ``file`` is relative to the folder that holds the package, such as ``torch/distributed/fsdp/_fully_shard/_fully_shard.py``;
    ``first_line`` and ``last_line`` count from 1 and span the definition of the symbol.
    """

    state: SymbolState
    file: str = ""
    first_line: int | None = None
    last_line: int | None = None
    near: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ExampleState:
    """How one example ended; ``message`` is the last line of a failure, or the documented reason of a refusal."""

    state: ExampleOutcome
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class LintEnvironment:
    """Facts from outside. References by (symbol, parameter), the parameter empty where a card names none; examples by card file and
    index from 0. What is not in here was not looked for, and is not judged."""

    torch_version: str = ""
    references: Mapping[tuple[str, str], ReferenceState] = field(default_factory=dict)
    examples: Mapping[tuple[str, int], ExampleState] = field(default_factory=dict)
