"""The only place that prints: results on standard output, progress and errors on standard error."""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from strategist.cli import signal_handlers
from strategist.contract import codec
from strategist.units import show_bytes

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from strategist.contract.simulation import SimulatedRank

MIN_WIDTH, DEFAULT_WIDTH, MIN_HEIGHT = 40, 80, 24
FRAMES_PER_SECOND = 1.0
"""Refresh rate of live views; drawing takes 10 ms from measurements on the same machine."""

ASCII = str.maketrans({"█": "#", "·": ".", "•": "+", "…": "~"})
"""Stand-ins for terminals that show ASCII only."""

_ERASE = "\r\x1b[2K"
_MESSAGE_PREFIX = "strategist: "
_PRINTING = threading.Lock()
_status_line: list[str] = []
"""The progress line below the output, if there is one."""
_reserved: list[bool] = []
"""Not empty if results are not printed."""


def escape(error: UnicodeError) -> tuple[str, int]:
    """Encoding error handler: drawing characters get a stand-in, others are escaped as in JSON."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end].translate(ASCII))[1:-1], error.end


def _is_ascii() -> bool:
    """Whether the locale is C by name; Python writes UTF-8 there nevertheless."""
    names = (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    return next(filter(None, names), "") in ("C", "POSIX")


def show(*parts: "RenderableType", now: bool = False) -> None:
    """Prints renderables, coloured on a terminal; elsewhere plain and without trailing blanks. ``now`` flushes them."""
    screen = console()
    with screen.capture() as captured:
        for part in parts:
            screen.print(part, crop=False)  # commands to paste stay on one line
    text = captured.get().translate(ASCII) if _is_ascii() else captured.get()
    _print(text if screen.is_terminal else "\n".join(line.rstrip() for line in text.split("\n")), end="", flush=now)


def console(*, errors: bool = False) -> "Console":
    """A console on standard output or error without markup, as wide as the terminal, from 40 columns on."""
    from rich.console import Console  # 50 ms that JSON and errors do without

    new_console = Console(stderr=errors, markup=False, highlight=False, emoji=False, soft_wrap=False)
    new_console.width = max(new_console.width, MIN_WIDTH)
    return new_console


def show_json(value: Any) -> None:
    """Prints a contract value as its versioned JSON document, anything else as plain JSON."""
    plain = isinstance(value, dict | list)
    _print(
        json.dumps(codec.encode(value), indent=2, ensure_ascii=False) if plain else codec.dumps(value), end="\n" if plain else ""
    )


def reserve_output(reserved: bool) -> None:
    """Reserves standard output for the file of ``-o -``, which must be its only content."""
    _reserved[:] = [True] if reserved else []


def line(text: str, *, now: bool = False) -> None:
    """Prints one line of a result; ``now`` flushes it."""
    _print(text, flush=now)


def has_screen() -> bool:
    """Whether standard error is a terminal with a display, and this process is in its foreground. Variables that force colours
    do not make a file a terminal.
    """
    return bool(os.environ.get("TERM")) and sys.stderr.isatty() and _in_foreground() and console(errors=True).is_interactive


def _in_foreground() -> bool:
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except OSError:  # no shell shares this terminal
        return True


@contextmanager
def live(renderable: "RenderableType") -> Iterator[None]:
    """Redraws ``renderable`` on the whole screen of the terminal until the end of the context, following its size; restores the
    terminal, also while the job is stopped. After an error the last view stays.
    """
    display = _display(renderable)

    def pause(number: int, frame: object) -> None:
        display.stop()
        os.kill(os.getpid(), signal.SIGSTOP)

    def resume(number: int, frame: object) -> None:
        if _in_foreground():
            display.start(refresh=True)

    def redraw(number: int, frame: object) -> None:
        if display.is_started:
            display.refresh()

    handlers = {signal.SIGTSTP: pause, signal.SIGCONT: resume, signal.SIGWINCH: redraw}
    succeeded = False
    try:
        with signal_handlers.handled(handlers):
            display.start(refresh=True)
            yield
            succeeded = True
    finally:
        with suppress(OSError):  # the terminal may be gone
            display.stop()
            if not succeeded:
                console(errors=True).print(renderable)


def _display(renderable: "RenderableType") -> "Live":
    from rich.console import Console
    from rich.live import Live

    screen = Console(stderr=True, markup=False, highlight=False, emoji=False)

    def resized() -> "RenderableType":
        columns, lines = os.get_terminal_size(sys.stderr.fileno())  # COLUMNS and LINES may be outdated
        screen.size = (columns or DEFAULT_WIDTH, lines or MIN_HEIGHT)
        return renderable

    return Live(
        get_renderable=resized, console=screen, screen=True, refresh_per_second=FRAMES_PER_SECOND, redirect_stdout=False,
        redirect_stderr=False,
    )  # fmt: skip


def print_note(text: str) -> None:
    """Prints a note about the result on standard error."""
    _print(f"strategist: {text}", file=sys.stderr)


def document_lines(values: Iterable[Any]) -> None:
    """Prints contract values as a stream of JSON lines."""
    for value in values:
        line(codec.one_line(value), now=True)


def rank_line(rank: "SimulatedRank") -> None:
    """Prints the simulation of a rank as soon as it is done."""
    instant = " ".join(filter(None, (rank.moment.phase, rank.moment.module)))
    print_note(f"rank {rank.rank}: {show_bytes(rank.peak_memory_bytes)} at {instant}")


def print_error(error: object) -> None:
    """Prints the one line of an error."""
    words = " ".join((str(error), *getattr(error, "__notes__", ()))).split()
    _print(f"strategist: {' '.join(words)}", file=sys.stderr)


def status_width() -> int:
    """Width of the line that :func:`status` draws, in characters."""
    return (os.get_terminal_size(sys.stderr.fileno()).columns or DEFAULT_WIDTH) - len(_MESSAGE_PREFIX) - 1


def status(text: str) -> None:
    """Draws a progress line in place of the previous one; the next output replaces it, and an empty text removes it."""
    with _PRINTING:
        if text:
            sys.stderr.write(f"{_ERASE}{_MESSAGE_PREFIX}{text[: status_width()]}")
        elif _status_line:
            sys.stderr.write(_ERASE)
        sys.stderr.flush()
        _status_line[:] = [text] if text else []


def _print(text: str, **options: Any) -> None:
    with _PRINTING:
        if _status_line:
            sys.stderr.write(_ERASE)
            sys.stderr.flush()
            _status_line.clear()
        if "file" in options or not _reserved:
            print(text, **options)
