"""Checks that need the installed torch or the results of examples; skipped without them."""

from collections.abc import Iterator

from strategist.cards.card import SourceRef
from strategist.contract.diagnostic import Diagnostic, Level
from strategist.contract.torch_symbol import Reference, ReferenceOutcome
from strategist.lint.registry import Subject, check, finding


@check("CARD042", Level.ERROR, "A symbol of a source, and its parameter, exist in the installed torch.")
def symbols_exist(subject: Subject) -> Iterator[Diagnostic]:
    """A source names a symbol that the installed torch does not have, or a parameter that the symbol does not take.

    Why: torch changed and the card did not: its statements may no longer hold.
    Do: look up the new name, and check whether the card still holds with it
    Bad:
        - {symbol: torch.distributed.fsdp.fully_shard, parameter: reshard}
    Good:
        - {symbol: torch.distributed.fsdp.fully_shard, parameter: reshard_after_forward}
    """
    for index, ref, found in _references(subject):
        suggestion = f"; did you mean {' or '.join(found.near)}?" if found.near else ""
        version = subject.environment.torch_version if subject.environment else ""
        if found.outcome is ReferenceOutcome.NO_SYMBOL:
            yield finding(subject, "CARD042", f"torch {version} has no {ref.symbol}{suggestion}", ("source_refs", index, "symbol"))
        elif found.outcome is ReferenceOutcome.NO_PARAMETER:
            message = f"{ref.symbol} of torch {version} has no parameter {ref.parameter}{suggestion}"
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
    for index, ref, found in _references(subject):
        first, last = found.first_line, found.last_line
        if ref.lines and first and last and not first <= ref.lines[0] <= ref.lines[1] <= last:
            version = subject.environment.torch_version if subject.environment else ""
            drift = f"lines {ref.lines[0]}-{ref.lines[1]} have drifted"
            message = f"{drift}: {ref.symbol} of torch {version} lies in {found.file}:{first}-{last}"
            yield finding(subject, "CARD043", message, ("source_refs", index, "lines"))


@check("CARD044", Level.ERROR, "An example runs, or is refused as it declares.")
def examples_run(subject: Subject) -> Iterator[Diagnostic]:
    """The example of a card was run and failed.

    Why: Examples are copied; one that fails spreads an error.
    Do: correct the program; or, where no CPU can run it, write refused: with words of the error
    Bad:
        - {run: "fully_shard(model)"}     # a name that is not defined
    Good:
        - {run: "from torch.distributed.fsdp import fully_shard"}
    """
    results = subject.environment.examples if subject.environment else {}
    for index, _ in enumerate(subject.card.example if subject.card else ()):
        result = results.get((subject.path, index))
        if result and not result.sound:
            location = f"line {result.line}: " if result.line else ""
            yield finding(subject, "CARD044", f"example {index + 1} fails: {location}{result.message}", ("example", index))


def _references(subject: Subject) -> Iterator[tuple[int, SourceRef, Reference]]:
    """Sources of the card that were looked up, with the result."""
    known = subject.environment.references if subject.environment else {}
    for index, ref in enumerate(subject.card.source_refs if subject.card else ()):
        if found := known.get((ref.symbol, ref.parameter)):
            yield index, ref, found
