"""Progress bar of a long command, with an estimate of the remaining time."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from strategist.cli import render
from strategist.contract import progress
from strategist.units import show_seconds

SILENT_SECONDS = 2.0
REDRAW_SECONDS = 0.5


@contextmanager
def progress_line() -> Iterator[None]:
    """Shows a progress line below the output from the third second on; nothing without a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    finished, begun = threading.Event(), time.monotonic()
    thread = threading.Thread(target=_draw, args=(finished, begun), daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()
        render.status("")


def _draw(finished: threading.Event, begun: float) -> None:
    if finished.wait(SILENT_SECONDS) or not render.has_screen():
        return
    while not finished.wait(REDRAW_SECONDS):
        render.status(progress_text(progress.under_way(), time.monotonic(), begun))


def progress_text(stages: tuple[progress.Stage, ...], now: float, begun: float) -> str:
    """Progress and remaining time, assuming equal parts; elapsed time if nothing is known."""
    counts = ", ".join(f"{stage.done} of {stage.total} {stage.units}" for stage in stages)
    if note := next((stage.note for stage in stages if stage.note), ""):
        return f"{counts}, {note}"
    share = progress.share_done(stages)
    if not share:
        return f"{counts + ', ' if counts else ''}for {now - begun:.0f} s"
    return f"{counts}, about {show_seconds((now - stages[0].begun) * (1 - share) / share)} left"
