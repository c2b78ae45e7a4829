"""One rank whose operations on streams are looked at for races; with one planted where that is asked for; test_races starts it."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from strategist_runtime.parallel.copy_streams import Copy, Lane
from strategist_runtime.process import leave
from strategist_runtime.simulate.host_memory import HOST, creating_part
from strategist_runtime.simulate.live_tensors import Live
from strategist_runtime.simulate.races import Races
from strategist_runtime.simulate.rank import races
from strategist_runtime.simulate.virtual_streams import SimulatedStreams, StreamOrder, simulate_streams

from strategist.contract import codec
from strategist.contract.plan import Plan


def nobody_waits() -> None:
    """What a copy brings is used before it is there."""
    Copy.on_device = lambda copy: copy.tensor  # type: ignore[method-assign]


def nothing_is_recorded() -> None:
    """Memory is free while a copy still reads it."""
    SimulatedStreams.keep = lambda *_: None  # type: ignore[method-assign, assignment]


def staging_is_not_waited_for() -> None:
    """A state is written while it is still copied."""
    StreamOrder.wait_for_all = lambda _: None  # type: ignore[method-assign]


PLANTED: dict[str, Callable[[], None]] = {
    "a wait is missing": nobody_waits,
    "record_stream is missing": nothing_is_recorded,
    "staging is not waited for": staging_is_not_waited_for,
}


def filled_again(*, waits: bool) -> tuple[str, ...]:
    """The host fills a page-locked buffer that a copy to the device may still be reading."""
    order = simulate_streams()
    found = Races(order=order)
    device = torch.device("cpu")
    with Live(found).following([]):
        with creating_part(HOST):
            buffer = torch.zeros(8)
        copy = Lane(device).to_device(Copy(tensor=buffer))
        if waits:
            copy.on_host()
        buffer.add_(1)
    return tuple(found.found)


def main(file: Path, planted: str) -> None:
    """Writes what was found beside the plan."""
    if planted.startswith("filled again"):
        found = filled_again(waits="waits" in planted)
    else:
        PLANTED.get(planted, lambda: None)()
        found = races(codec.load(Plan, file), 0)
    file.with_suffix(".found").write_text(json.dumps(found), encoding="utf-8")
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
