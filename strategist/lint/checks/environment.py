"""Checks that need the installed torch or the results of examples; skipped without them."""

from collections.abc import Iterator

from strategist.cards.card import SourceRef
from strategist.contract.diagnostic import Diagnostic, Level
from strategist.lint.environment import ExampleOutcome, ReferenceState, SymbolState
from strategist.lint.registry import Subject, check, finding


@check("CARD042", Level.ERROR, "A symbol of a source, and its parameter, exist in the installed torch.")
def symbols_exist(subject: Subject) -> Iterator[Diagnostic]:
    """A source names a symbol that the installed torch does not have, or a parameter that the symbol does not take.

    Why: torch moved on and the card did not: what it says may no longer be so.
    Do: look the new name up, and whether the card still holds with it
    Bad:
        - {symbol: torch.distributed.fsdp.fully_shard, parameter: reshard}
    Good:
        - {symbol: torch.distributed.fsdp.fully_shard, parameter: reshard_after_forward}
    """
    for index, ref, state in _references(subject):
        near = f"; did you mean {' or '.join(state.near)}?" if state.near else ""
        version = subject.world.torch_version if subject.world else ""
        if state.state is SymbolState.NO_SYMBOL:
            yield finding(subject, "CARD042", f"torch {version} has no {ref.symbol}{near}", ("source_refs", index, "symbol"))
        elif state.state is SymbolState.NO_PARAMETER:
            message = f"{ref.symbol} of torch {version} has no parameter {ref.parameter}{near}"
            yield finding(subject, "CARD042", message, ("source_refs", index, "parameter"))


@check("CARD043", Level.WARNING, "The lines of a source lie inside its symbol.")
def lines_hold(subject: Subject) -> Iterator[Diagnostic]:
    """The lines that a source names are not, or no longer, those of the symbol in the installed torch.

    Why: Lines drift with every release; the same line later holds other code.
    Do: write the lines that the message names, after reading them, or leave lines out
    Bad:
        - {symbol: torch.distributed.fsdp.fully_shard, lines: 1-20}
    Good:
        - {symbol: torch.distributed.fsdp.fully_shard}
    """
    for index, ref, state in _references(subject):
        first, last = state.first_line, state.last_line
        if ref.lines and first and last and not first <= ref.lines[0] <= ref.lines[1] <= last:
            version = subject.world.torch_version if subject.world else ""
            shown = f"lines {ref.lines[0]}-{ref.lines[1]} have drifted"
            message = f"{shown}: {ref.symbol} of torch {version} lies in {state.file}:{first}-{last}"
            yield finding(subject, "CARD043", message, ("source_refs", index, "lines"))


@check("CARD044", Level.ERROR, "An example runs, or is refused as it says.")
def examples_run(subject: Subject) -> Iterator[Diagnostic]:
    """The example of a card was run and failed.

    Why: An example is what people copy; one that fails teaches an error.
    Do: correct the program; or, where no CPU can run it, write refused: with words of the error
    Bad:
        - {run: "fully_shard(model)"}     # a name that is not defined
    Good:
        - {run: "from torch.distributed.fsdp import fully_shard"}
    """
    states = subject.world.examples if subject.world else {}
    for index, _ in enumerate(subject.card.example if subject.card else ()):
        state = states.get((subject.path, index))
        if state and state.state is ExampleOutcome.FAILED:
            yield finding(subject, "CARD044", f"example {index + 1} fails: {state.message}", ("example", index))


def _references(subject: Subject) -> Iterator[tuple[int, SourceRef, ReferenceState]]:
    """The sources of the card that were looked up."""
    known = subject.world.references if subject.world else {}
    for index, ref in enumerate(subject.card.source_refs if subject.card else ()):
        if state := known.get((ref.symbol, ref.parameter)):
            yield index, ref, state
