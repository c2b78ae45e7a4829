"""Files that ``--trace`` writes for each rank: the profiled step for Perfetto or Chrome, and memory over time.

``rank-<r>.trace.json`` is the profiler's trace. On CUDA ``rank-<r>.memory.pickle`` has the stack of each allocation, for
pytorch.org/memory_viz. ``rank-<r>.memory.json`` is a counter for Perfetto, on every device.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from strategist.errors import FileError
from strategist_runtime.compat import profile as compat_profile

MAX_HISTORY = 1_000_000
"""Most allocations and frees in a snapshot."""


def write_profile(folder: Path, rank: int, profiler: Any) -> None:
    """Writes the profiler's trace."""
    _make_folder(folder)
    profiler.export_chrome_trace(str(folder / f"rank-{rank}.trace.json"))


def write_memory_curve(folder: Path, rank: int, static_bytes: int, points: Sequence[tuple[int, int]]) -> None:
    """Writes the bytes allocated over the step as counter events; times in microseconds, as the format requires."""
    begin = points[0][0] if points else 0
    events = [
        {
            "name": "allocated bytes", "ph": "C", "pid": rank, "tid": 0, "ts": (time_ns - begin) / 1e3,
            "args": {"allocated": static_bytes + dynamic_bytes},
        }
        for time_ns, dynamic_bytes in points
    ]  # fmt: skip
    _make_folder(folder)
    (folder / f"rank-{rank}.memory.json").write_text(json.dumps({"traceEvents": events}), encoding="utf-8")


@contextmanager
def device_memory(device: torch.device, folder: Path | None, rank: int) -> Iterator[None]:
    """Context in which the CUDA allocator records its operations; the snapshot is written at its end."""
    if folder is None or device.type != "cuda":
        yield
        return
    _make_folder(folder)
    compat_profile.record_memory_history(MAX_HISTORY)
    try:
        yield
        compat_profile.dump_memory_snapshot(str(folder / f"rank-{rank}.memory.pickle"))
    finally:
        compat_profile.record_memory_history(None)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(folder, f"cannot be made: {error.strerror}; choose another folder for --trace") from None
