"""One rank whose stream operations are checked for races, optionally with an injected race; started by test_races."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from strategist_runtime.data.batch import Batch
from strategist_runtime.optimizers.in_backward import InBackward
from strategist_runtime.parallel.copy_streams import Copy, CopyStream, streams_of
from strategist_runtime.parallel.streaming import Stage, Streaming
from strategist_runtime.rank_process import leave
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


def skip_update_waits() -> None:
    """Begins a step before the parameters that the host has updated are on the device."""
    CopyStream.join = lambda _: None  # type: ignore[method-assign]


def skip_callback_waits() -> None:
    """Begins a step before the updates of DDP's callbacks have finished."""

    @contextmanager
    def on_one_stream(optimizer: InBackward, device: torch.device) -> Iterator[None]:
        streams = streams_of(device)
        optimizer.stream = optimizer.stream or streams.stream()
        optimizer.stream.wait_stream(streams.current())
        with streams.on(optimizer.stream):
            yield

    InBackward.on_one_stream = on_one_stream  # type: ignore[method-assign]


def refill_weights_early() -> None:
    """Writes a stage's weights on the host while they may still be copied to the device."""
    forward = Streaming._forward

    def forward_and_refresh(streaming: Streaming, stage: Stage, micro_batches: list[Batch]) -> None:
        forward(streaming, stage, micro_batches)
        stage.refresh()

    Streaming._forward = forward_and_refresh  # type: ignore[method-assign]


INJECTED: dict[str, Callable[[], None]] = {
    "a wait is missing": skip_copy_waits,
    "record_stream is missing": skip_record_stream,
    "staging is not waited for": skip_staging_waits,
    "the update's copies are not waited for": skip_update_waits,
    "the update in callbacks is not waited for": skip_callback_waits,
    "weights refilled": refill_weights_early,
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
