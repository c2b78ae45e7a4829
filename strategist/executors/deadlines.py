"""Progress of a trial's ranks, and whether one of its deadlines has passed.

A rank rewrites ``rank-<r>.phase`` when it enters a phase and at every step. Only the change of the file counts, not the time in
it. All times are monotonic, so that setting the clock during a trial has no effect.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from strategist.contract.measurement import STOPPED, TrialSettings
from strategist.contract.progress import Progress
from strategist.executors.host_agents import RENDEZVOUS_FILE
from strategist.executors.progress_file import read_steps
from strategist.frozen import frozen

PHASES = ("", "spawn", "init", "build", "warm-up", "measure", "profile", "evaluate", "save", STOPPED, "done")
STARTING, RUNNING = PHASES[:4], PHASES[4:]
FIGURES = ("loss", "grad_norm", "evaluation_loss", "seconds", "memory_bytes")
LAST_BYTES = 4096
"""Bytes read from the end of the progress file; enough for the latest steps."""

FAILURE_GRACE_SECONDS = 5.0
"""Seconds that the other ranks may run after one failed: enough to write their records, less than the launcher would wait."""

LAUNCHER_GRACE_SECONDS = 40.0
"""The same if the launcher handles failures: a scheduler needs time to notice a lost machine, and torchrun needs 30 s to end the
other ranks before it restarts all or reports the lost one.
"""


class Deadline(StrEnum):
    """Reason for ending a trial by a deadline.

    ``peers``: a rank had failed and others went on. ``memory``: the trial had used up the machine's memory. ``crowded``: other
    programs had used it up.
    """

    INIT = "init"
    STEP = "step"
    WALL = "wall"
    PEERS = "peers"
    MEMORY = "memory"
    CROWDED = "crowded"


@frozen
class Ending:
    """End of a trial's launcher: exit code, passed deadline, and the ranks at that time.

    exit_code: negative for a signal.
    deadline: the deadline that had passed; None if the launcher ended by itself.
    ended: ranks that had ended before the launcher was.
    straggler: the rank furthest behind.
    oom_kills: processes that the kernel killed for memory during the trial, on this machine.
    restarts: how often the launcher restarted the ranks.
    """

    exit_code: int
    deadline: Deadline | None
    ended: frozenset[int]
    straggler: int
    wall_seconds: float
    oom_kills: int
    restarts: int = 0


@dataclass
class _Rank:
    mark: tuple[int, int] = (0, 0)
    phase: str = ""
    changed_at: float = 0.0
    restarts: int = 0

    @property
    def progress(self) -> tuple[int, int]:
        """Sort key: ranks that are further behind come first."""
        return (PHASES.index(self.phase) if self.phase in PHASES else 0), self.mark[0]


class Watch:
    """Watches a running trial; all times are monotonic seconds.

    begun: time at which the ranks could start.
    queues: the trial waits for machines; it begins when the rendezvous file exists.
    restarts: how often the launcher may restart the ranks.
    """

    def __init__(
        self, folder: Path, ranks: int, settings: TrialSettings, now: float, *, queues: bool = False, restarts: int = 0
    ) -> None:
        self._folder, self._settings, self.begun, self._attempt = folder, settings, now, now
        self._queues = self._queued = queues
        self._restarts = restarts
        self._ranks = [_Rank(changed_at=now) for _ in range(ranks)]
        self._failed_at: float | None = None

    def look(self, now: float) -> Deadline | None:
        """Reads the changed files; returns the deadline that has passed, or None."""
        if self._queued:
            self._queued = not (self._folder / RENDEZVOUS_FILE).exists()
            self.begun = self._attempt = now
            return None
        for number, rank in enumerate(self._ranks):
            self._update_rank(number, rank, now)
        self._update_failure(now)
        settings, elapsed = self._settings, now - self.begun
        if self._failed_at is not None and now - self._failed_at > self._grace_seconds():
            return Deadline.PEERS
        if settings.wall_timeout_seconds is not None and elapsed > settings.wall_timeout_seconds:
            return Deadline.WALL
        if any(rank.phase in STARTING for rank in self._ranks):
            return Deadline.INIT if now - self._attempt > settings.init_timeout_seconds else None
        idle_seconds = now - max(rank.changed_at for rank in self._ranks)
        allowed_seconds = settings.init_timeout_seconds if self._first_step() else 0.0
        if any(rank.phase == "save" for rank in self._ranks):
            allowed_seconds = max(allowed_seconds, settings.save_timeout_seconds)
        return Deadline.STEP if idle_seconds > max(allowed_seconds, settings.step_timeout_seconds) else None

    def _grace_seconds(self) -> float:
        waits = self._queues or self._settings.elastic or self.restarts < self._restarts
        return LAUNCHER_GRACE_SECONDS if waits else FAILURE_GRACE_SECONDS

    def _first_step(self) -> bool:
        """Whether all ranks are in their first step, which takes longer: it connects ranks, loads kernels and compiles layers."""
        return (
            all(rank.phase == "warm-up" for rank in self._ranks)
            and _last_step(read_steps(self._folder, last_bytes=LAST_BYTES)) is None
        )

    def _update_rank(self, number: int, rank: _Rank, now: float) -> None:
        path = self._folder / f"rank-{number}.phase"
        try:
            status = path.stat()
            mark = (status.st_mtime_ns, status.st_ino)
            if mark != rank.mark:
                words = path.read_text(encoding="utf-8", errors="replace").split()
                rank.mark, rank.phase, rank.changed_at = mark, words[0] if words else "", now
        except OSError:  # the file does not exist yet
            pass
        if (restarts := read_restarts(self._folder, number)) > rank.restarts:
            rank.restarts, rank.phase, rank.changed_at, self._attempt = restarts, "", now, now

    def _update_failure(self, now: float) -> None:
        """Notes the time of the first failure; a restarted rank no longer counts as failed."""
        ends = [read_exit(self._folder, number) for number in range(len(self._ranks))]
        if not any(end is not None and end[0] != 0 for end in ends):
            self._failed_at = None
        elif self._failed_at is None:
            self._failed_at = now

    @property
    def restarts(self) -> int:
        """Number of restarts of the ranks."""
        return max(rank.restarts for rank in self._ranks)

    @property
    def straggler(self) -> int:
        """The rank furthest behind: not ended, in the earliest phase, and within it with the oldest change."""
        ended = self.ended()
        return min(range(len(self._ranks)), key=lambda number: (number in ended, *self._ranks[number].progress))

    def ended(self) -> frozenset[int]:
        """Ranks that have written a record or an exit code."""
        ranks = range(len(self._ranks))
        return frozenset(
            rank for rank in ranks if (self._folder / f"rank-{rank}.json").exists() or read_exit(self._folder, rank) is not None
        )

    def progress(self, now: float) -> Progress:
        """Progress of the trial."""
        steps = read_steps(self._folder, last_bytes=LAST_BYTES)
        return Progress(
            phase="queued" if self._queued else self._ranks[self.straggler].phase or "spawn",
            step=_last_step(steps),
            elapsed_seconds=now - self.begun,
            step_seconds=tuple(float(step["seconds"]) for step in steps if step.get("phase") == "measure" and step.get("seconds")),
            latest=latest(steps),
        )


def read_exit(folder: Path, rank: int) -> tuple[int, float] | None:
    """Exit code (negative for a signal) and monotonic time of the rank's end; None while it runs."""
    try:
        code, when = (folder / f"rank-{rank}.exit").read_text(encoding="ascii").split()
        return int(code), float(when)
    except (OSError, ValueError):
        return None


def read_restarts(folder: Path, rank: int) -> int:
    """Number of restarts of the rank."""
    try:
        return int((folder / f"rank-{rank}.restarts").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def latest(steps: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The latest value of each figure in these lines of the progress file."""
    return {name: float(value) for step in steps for name, value in step.items() if name in FIGURES and value is not None}


def _last_step(steps: Sequence[dict[str, Any]]) -> int | None:
    """Number of the last step; None if there is none."""
    step = steps[-1].get("step") if steps else None
    return step if isinstance(step, int) else None
