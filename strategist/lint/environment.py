"""Environment of the linter: facts that card files do not contain (installed torch, results of examples), found elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from strategist.contract.example import ScriptResult
from strategist.contract.torch_symbol import Reference


@dataclass(frozen=True, kw_only=True)
class LintEnvironment:
    """Facts from outside. References by (symbol, parameter), the parameter empty where a card names none; examples by card file and
    index from 0. What is not in here was not looked for, and is not judged."""

    torch_version: str = ""
    references: Mapping[tuple[str, str], Reference] = field(default_factory=dict)
    examples: Mapping[tuple[str, int], ScriptResult] = field(default_factory=dict)
