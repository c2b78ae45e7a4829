"""Environment of the linter on this machine: torch symbols for source references, and results of examples."""

from collections.abc import Sequence

from strategist.cards.card import Card
from strategist.contract.example import ScriptOutcome, ScriptResult
from strategist.executors.card_tests import run_examples
from strategist.executors.torch_symbols import look_up, sources, states
from strategist.lint.environment import ExampleOutcome, ExampleState, LintEnvironment

_RAN = {ScriptOutcome.PASSED: ExampleOutcome.PASSED, ScriptOutcome.REFUSED: ExampleOutcome.REFUSED}


def inspect_environment(cards: Sequence[Card], *, look_up_sources: bool, run_the_examples: bool) -> LintEnvironment:
    """The world of these cards: their sources in the installed torch, and what became of their examples.

    Raises:
        InputError: torch is not installed, or the system cannot supervise processes.
    """
    asked = sources(cards) if look_up_sources else ()
    found = look_up(asked) if asked else None
    ran = run_examples(cards) if run_the_examples else {}
    return LintEnvironment(
        torch_version=found.torch_version if found else "",
        references=states(found) if found else {},
        examples={key: _state(result) for key, result in ran.items()},
    )


def _state(result: ScriptResult) -> ExampleState:
    where = f"line {result.line}: " if result.line and not result.sound else ""
    return ExampleState(state=_RAN.get(result.outcome, ExampleOutcome.FAILED), message=where + result.message)
