"""Environment of the linter: facts that card files do not contain (installed torch, results of examples), collected elsewhere."""

from collections.abc import Mapping
from dataclasses import field

from strategist.contract.card_example import ScriptResult
from strategist.contract.torch_symbol import Reference
from strategist.frozen import frozen


@frozen
class LintEnvironment:
    """Facts from outside of the card files; facts that are missing were not looked up, and their checks are skipped.

    references: by (symbol, parameter); the parameter is empty if a card names none.
    examples: by card file and index from 0.
    """

    torch_version: str = ""
    references: Mapping[tuple[str, str], Reference] = field(default_factory=dict)
    examples: Mapping[tuple[str, int], ScriptResult] = field(default_factory=dict)
