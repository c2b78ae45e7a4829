"""The only place that prints: results on standard output, progress and complaints on standard error."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strategist.contract import codec
from strategist.contract.simulation import SimulatedRank
from strategist.errors import FileError
from strategist.units import show_bytes

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

NARROWEST = 80


def show(*parts: "RenderableType") -> None:
    """Prints renderables, in colour on a terminal and plain elsewhere, there without blanks at the ends of lines."""
    screen = console()
    with screen.capture() as captured:
        for part in parts:
            screen.print(part)
    text = captured.get()
    print(text if screen.is_terminal else "\n".join(line.rstrip() for line in text.split("\n")), end="")


def console(*, errors: bool = False) -> "Console":
    """A console on standard output or error that takes text as it is, and is never too narrow for a table."""
    from rich.console import Console  # 50 ms that JSON and errors do without

    made = Console(stderr=errors, markup=False, highlight=False, emoji=False, soft_wrap=False)
    made.width = max(made.width, NARROWEST)
    return made


def show_json(value: Any) -> None:
    """Prints a value of the contract as its versioned JSON document, anything else as plain JSON."""
    plain = isinstance(value, dict | list)
    print(json.dumps(codec.encode(value), indent=2, ensure_ascii=False) if plain else codec.dumps(value), end="\n" if plain else "")


def write(file: Path, text: str) -> None:
    """Writes a result into a file that was asked for.

    Raises:
        FileError: it cannot be written.
    """
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise FileError(file, f"cannot be written: {error.strerror}") from None


def line(text: str, *, now: bool = False) -> None:
    """Prints one line of a result; ``now`` does not wait for more."""
    print(text, flush=now)


def remark(text: str) -> None:
    """Says something about the result beside it."""
    print(f"strategist: {text}", file=sys.stderr)


def document_line(value: Any) -> None:
    """Prints a value of the contract as one line of a stream that somebody follows."""
    line(codec.one_line(value), now=True)


def rank_line(rank: SimulatedRank) -> None:
    """Says what the simulation of a rank showed, as soon as it is done."""
    at = " ".join(filter(None, (rank.moment.phase, rank.moment.module)))
    remark(f"rank {rank.rank}: {show_bytes(rank.peak_memory_bytes)} at {at}")


def complain(error: object) -> None:
    """The one line for what went wrong."""
    print(f"strategist: {' '.join(str(error).split())}", file=sys.stderr)
