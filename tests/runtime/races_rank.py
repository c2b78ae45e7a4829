"""One rank whose stream operations are checked for races, optionally with an injected race; started by test_races."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from strategist_runtime.parallel.copy_streams import Copy, CopyStream
from strategist_runtime.process import leave
from strategist_runtime.simulate.host_memory import HOST, creating_part
from strategist_runtime.simulate.live_tensors import Live
from strategist_runtime.simulate.races import Races
from strategist_runtime.simulate.rank import races
from strategist_runtime.simulate.virtual_streams import SimulatedStreams, StreamOrder, simulate_streams

from strategist.contract import codec
from strategist.contract.plan import Plan


def skip_copy_waits() -> None:
    """Uses copied data before the copy is complete."""
    Copy.on_device = lambda copy: copy.tensor  # type: ignore[method-assign]


def skip_record_stream() -> None:
    """Frees memory while a copy still reads it."""
    SimulatedStreams.record_stream = lambda *_: None  # type: ignore[method-assign, assignment]


def skip_staging_waits() -> None:
    """Writes a state while it is still being copied."""
    StreamOrder.wait_for_all = lambda _: None  # type: ignore[method-assign]


INJECTED: dict[str, Callable[[], None]] = {
    "a wait is missing": skip_copy_waits,
    "record_stream is missing": skip_record_stream,
    "staging is not waited for": skip_staging_waits,
}


def refilled_buffer(*, waits: bool) -> tuple[str, ...]:
    """The host refills a page-locked buffer that a copy to the device may still be reading."""
    order = simulate_streams()
    found = Races(order=order)
    device = torch.device("cpu")
    with Live(found).tracking([]):
        with creating_part(HOST):
            buffer = torch.zeros(8)
        copy = CopyStream(device).to_device(Copy(tensor=buffer))
        if waits:
            copy.on_host()
        buffer.add_(1)
    return tuple(found.found)


def main(file: Path, injected: str) -> None:
    """Writes the found races next to the plan."""
    if injected.startswith("buffer refilled"):
        found = refilled_buffer(waits="waits" in injected)
    else:
        INJECTED.get(injected, lambda: None)()
        found = races(codec.load(Plan, file), 0)
    file.with_suffix(".found").write_text(json.dumps(found), encoding="utf-8")
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
