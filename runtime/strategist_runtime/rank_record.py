"""Files that a rank writes: its phase, its progress and its record; and the request to stop."""

import json
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strategist.contract import codec
from strategist.contract.checkpoint import STOP_FILE
from strategist.contract.measurement import Outcome, RankRecord
from strategist.contract.rank_observation import Moment, Traffic

REMARKS = 5
"""So many of the last ones are kept."""


class NotFinite(Exception):  # noqa: N818 - an outcome, not a fault
    """A loss or a gradient norm is no finite number."""


class Stopped(Exception):  # noqa: N818 - an outcome, not a fault
    """The training was asked to end: it has finished its step, and its state is saved."""


class StopRequest:
    """Whether the training of this rank was asked to end well: by a SIGTERM once it is ``armed``, or by the file at ``path``."""

    def __init__(self, path: Path) -> None:
        self.path, self.armed, self.signalled = path, False, False

    def signal(self) -> bool:
        """A SIGTERM has come; whether the training ends by itself. A second one does not wait."""
        answered, self.signalled = self.armed and not self.signalled, True
        return answered

    def wanted(self) -> bool:
        """Whether it is to end after the step that it is at."""
        return self.armed and (self.signalled or self.path.exists())


@dataclass(kw_only=True)
class Figures:
    """What a rank has measured so far, under the names of its record; None until it has."""

    losses: list[float] = field(default_factory=list)
    grad_norms: list[float] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    peak_memory_bytes: int | None = None
    profiled_step_seconds: float | None = None
    communication_seconds: float | None = None
    exposed_communication_seconds: float | None = None
    exposed_seconds_by_axis: dict[str, float] | None = None
    pipeline_waits: tuple[float, ...] | None = None
    shortest_transfer_seconds: float | None = None
    compute_seconds: float | None = None
    time: dict[str, float] | None = None
    traffic: tuple[Traffic, ...] = ()
    peak_reserved_bytes: int | None = None
    peak_moment: Moment | None = None
    versions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class Recorder:
    """Writes ``rank-<r>.phase`` at every section and step, ``progress.jsonl`` on rank 0, and ``rank-<r>.json`` once.

    ``idle_bytes`` is the memory that the process held before it built the model.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder, self.rank = folder, rank
        self.stop = StopRequest(folder / STOP_FILE)
        self.figures = Figures()
        self.plan_id = ""
        self.idle_bytes = 0
        self.phase = "spawn"
        self._ended = False
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)
        self.enter("spawn")

    def enter(self, phase: str) -> None:
        """A section begins, or goes on: one line, the phase and the wall time, replaced as a whole."""
        self.phase = phase
        target = self.folder / f"rank-{self.rank}.phase"
        draft = target.with_suffix(".phase.draft")
        draft.write_text(f"{phase} {time.time():.6f}\n", encoding="utf-8")
        draft.replace(target)

    def step(self, index: int, **figures: float | None) -> None:
        """A step is done, or its evaluation; figures are None where they are not finite."""
        self.enter(self.phase)
        if self.rank != 0:
            return
        line = {"step": index, "phase": self.phase, **figures, "time": time.time()}
        with (self.folder / "progress.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def remark(self, text: str) -> None:
        """What people should read goes into the log at once, and the last of it into the record."""
        print(text, file=sys.stderr, flush=True)
        self.figures.notes = [*self.figures.notes[1 - REMARKS :], text]

    def end(self, outcome: Outcome, message: str = "") -> None:
        """Writes the record. The first to come decides: the main thread and the one that waits for SIGTERM may both."""
        with self._lock:
            if not self._ended:
                codec.save(self._record(outcome, message), self.folder / f"rank-{self.rank}.json")
            self._ended = True

    def _record(self, outcome: Outcome, message: str) -> RankRecord:
        seen: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in vars(self.figures).items()
        }
        return RankRecord(rank=self.rank, outcome=outcome, phase=self.phase, message=message, plan_id=self.plan_id, **seen)
