"""Environment of the linter on this machine: torch symbols for source references, and results of examples."""

from collections.abc import Sequence

from strategist.cards.card import Card
from strategist.executors.card_tests import run_examples
from strategist.executors.torch_symbols import look_up, sources
from strategist.lint.environment import LintEnvironment


def inspect_environment(cards: Sequence[Card], *, look_up_sources: bool, run_the_examples: bool) -> LintEnvironment:
    """The environment for these cards: their sources in the installed torch, and the results of their examples.

    Raises:
        InputError: torch is not installed, or the system cannot supervise processes.
    """
    symbols = sources(cards) if look_up_sources else ()
    found = look_up(symbols) if symbols else None
    return LintEnvironment(
        torch_version=found.torch_version if found else "",
        references={(item.symbol, item.parameter): item for item in found.references} if found else {},
        examples=run_examples(cards) if run_the_examples else {},
    )
