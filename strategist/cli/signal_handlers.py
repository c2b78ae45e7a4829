"""Temporary handlers of signals."""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

Handler = Callable[[int, object], None]


@contextmanager
def handled(handlers: Mapping[signal.Signals, Handler]) -> Iterator[Callable[[], None]]:
    """Context in which signals have these handlers; the context value restores the previous ones before the context ends."""
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    try:
        yield restore
    finally:
        restore()


def not_ignored(*numbers: signal.Signals) -> list[signal.Signals]:
    """Those of the signals that this process does not ignore, for example under ``nohup``."""
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
