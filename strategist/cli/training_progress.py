"""Progress of a training: one updating line on a terminal, else a line every few seconds."""

import signal
import statistics
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from strategist.cli import render, signal_handlers
from strategist.contract.checkpoint import STOP_FILE
from strategist.contract.plan import Plan
from strategist.contract.progress import Progress, Stage
from strategist.units import show_bytes, show_seconds

RECENT_STEPS = 20
"""Number of latest steps whose median time predicts the remaining time."""

OPTIONAL_PARTS = ("grad_norm", "evaluation_loss", "memory_bytes", "mfu", "tokens")
"""Parts that narrow terminals leave out, in this order."""

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class TrainingProgress:
    """Shows the events of a run: in ``stage`` on a terminal, else as a line every ``every_seconds`` and for the first and last
    step of a training.
    """

    def __init__(self, plan: Plan, stage: Stage, every_seconds: float, *, training: bool) -> None:
        self.plan, self.stage, self.every_seconds, self.training = plan, stage, every_seconds, training
        self.recent: deque[float] = deque(maxlen=RECENT_STEPS)
        self.step: int | None = None
        self.printed_at: float | None = None

    def take(self, event: Progress) -> None:
        """Handles one event."""
        if event.step is None or event.step == self.step:
            self.stage.done = 0 if event.step is None else self.stage.done
            return
        self.step = event.step
        self.stage.done = min(self.stage.total, event.step + 1)
        if not self.training:
            return
        self.recent.append(event.latest.get("seconds", 0.0))
        self.stage.note = self._note(event.latest)
        now, is_last = time.monotonic(), self.stage.done == self.stage.total
        if not render.has_screen() and (self.printed_at is None or is_last or now - self.printed_at >= self.every_seconds):
            self.printed_at = now
            render.print_note(f"step {self.stage.done} of {self.stage.total}, {self.stage.note}")

    def _note(self, latest: dict[str, float]) -> str:
        """The progress text, shortened to fit the terminal."""
        parts, steps = dict(self._parts(latest)), f"{self.stage.done} of {self.stage.total} {self.stage.units}, "
        for name in OPTIONAL_PARTS if render.has_screen() else ():
            if len(steps + ", ".join(parts.values())) > render.status_width():
                parts.pop(name, None)
        return ", ".join(parts.values())

    def _parts(self, latest: dict[str, float]) -> Iterator[tuple[str, str]]:
        for name, text in {"loss": "loss", "grad_norm": "gradient norm", "evaluation_loss": "evaluation loss"}.items():
            if name in latest:
                yield name, f"{text} {latest[name]:.4g}"
        seconds, estimate = statistics.median(self.recent), self.plan.estimate
        if seconds > 0:
            yield "tokens", f"{self.plan.workload.tokens_per_step / seconds:,.0f} tokens/s"
            if estimate.step_seconds > 0:
                yield "mfu", f"MFU {100 * estimate.mfu * estimate.step_seconds / seconds:.2g}%"
        if "memory_bytes" in latest:
            yield "memory_bytes", show_bytes(latest["memory_bytes"])
        if self.stage.done < self.stage.total:
            yield "left", f"{show_seconds(seconds * (self.stage.total - self.stage.done))} left"


@contextmanager
def stop_with_checkpoint(folder: Path) -> Iterator[None]:
    """Within the context, the first SIGINT, SIGTERM or SIGHUP ends the training in ``folder`` after its step, with a checkpoint;
    the second interrupts it at once.
    """

    def request_stop(number: int, frame: object) -> None:
        for run_folder in (folder, *folder.glob("part-*")):  # an elastic training has its ranks in the last part
            if run_folder.is_dir():
                (run_folder / STOP_FILE).touch()
        restore()
        render.print_note(
            f"{signal.Signals(number).name}: the training ends after this step, with a checkpoint; once more ends it now"
        )

    with signal_handlers.handled(dict.fromkeys(signal_handlers.not_ignored(*STOPPING), request_stop)) as restore:
        yield
