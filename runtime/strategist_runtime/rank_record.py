"""Files that a rank writes: its phase, its progress and its record; and the request to stop."""

import json
import sys
import threading
import time
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from strategist.contract import codec
from strategist.contract.checkpoint import STOP_FILE
from strategist.contract.measurement import Outcome, ProfiledStep, RankRecord
from strategist.contract.rank_observation import Traffic

MAX_REMARKS = 5
"""Number of latest remarks in the record."""


class NotFinite(Exception):  # noqa: N818 - an outcome, not a fault
    """A loss or a gradient norm is not finite."""


class Stopped(Exception):  # noqa: N818 - an outcome, not a fault
    """The training ended on request: it has finished its step, and its state is saved."""


class StopRequest:
    """Request to end this rank's training after its step: a SIGTERM, or the file at ``path``; both only once it is ``armed``."""

    def __init__(self, path: Path) -> None:
        self.path, self.armed, self.signalled = path, False, False

    def signal(self) -> bool:
        """Records a SIGTERM. True if the training ends by itself; False if the process must end at once, as on the second one."""
        ends_by_itself, self.signalled = self.armed and not self.signalled, True
        return ends_by_itself

    def is_requested(self) -> bool:
        """Whether the training should end after the current step."""
        return self.armed and (self.signalled or self.path.exists())


@dataclass(kw_only=True)
class Figures:
    """Measurements of a rank so far, by the names of its record; None if not measured yet."""

    losses: list[float] = field(default_factory=list)
    grad_norms: list[float] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    peak_memory_bytes: int | None = None
    profiled: ProfiledStep = field(default_factory=ProfiledStep)
    traffic: tuple[Traffic, ...] = ()
    peak_reserved_bytes: int | None = None
    versions: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class Recorder:
    """Writes ``rank-<r>.phase`` at every phase and step, ``progress.jsonl`` on rank 0, and ``rank-<r>.json`` once.

    ``idle_bytes`` is the process's memory before it built the model.
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
        """Records that a phase begins or continues: one line with the phase and the wall-clock time; the file is replaced
        atomically.
        """
        self.phase = phase
        target = self.folder / f"rank-{self.rank}.phase"
        draft = target.with_suffix(".phase.draft")
        draft.write_text(f"{phase} {time.time():.6f}\n", encoding="utf-8")
        draft.replace(target)

    def step(self, index: int, **figures: float | None) -> None:
        """Records a finished step, or its evaluation; figures are None if not finite."""
        self.enter(self.phase)
        if self.rank != 0:
            return
        line = {"step": index, "phase": self.phase, **figures, "time": time.time()}
        with (self.folder / "progress.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def remark(self, text: str) -> None:
        """Prints a line for the user; the record keeps the latest ones."""
        print(text, file=sys.stderr, flush=True)
        self.figures.notes = [*self.figures.notes[1 - MAX_REMARKS :], text]

    def end(self, outcome: Outcome, message: str = "") -> None:
        """Writes the record. Only the first call counts: the main thread and the thread that handles SIGTERM may both call it."""
        with self._lock:
            if not self._ended:
                codec.save(self._record(outcome, message), self.folder / f"rank-{self.rank}.json")
            self._ended = True

    def _record(self, outcome: Outcome, message: str) -> RankRecord:
        values = dict(vars(self.figures))
        profiled = values.pop("profiled")
        record_values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        record_values |= {item.name: getattr(profiled, item.name) for item in fields(ProfiledStep)}
        return RankRecord(rank=self.rank, outcome=outcome, phase=self.phase, message=message, plan_id=self.plan_id, **record_values)
