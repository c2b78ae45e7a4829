"""The steps of one process of a training: where it begins, what is noted of each step, and when its state is saved."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

from strategist.contract.measurement import Course
from strategist.errors import InputError
from strategist_runtime import process
from strategist_runtime.compat.device import forget_peak, peak_bytes, synchronize
from strategist_runtime.compat.groups import set_timeouts
from strategist_runtime.record import NotFinite, Recorder
from strategist_runtime.training.checkpoint import Checkpoints
from strategist_runtime.training.curves import Curves
from strategist_runtime.training.profiling import fetched_step, profile_steps
from strategist_runtime.training.trainer import StepResult, Trainer


@dataclass(frozen=True, kw_only=True)
class Session:
    """A trainer at work from step ``first`` on. A trial is a session that keeps nothing."""

    trainer: Trainer
    recorder: Recorder
    first: int = 0
    checkpoints: Checkpoints | None = None
    curves: Curves | None = None

    def run(self) -> None:
        """All of its steps, in their phases.

        Raises:
            NotFinite: training diverged.
        """
        course = self.trainer.settings.course(self.first)
        self.recorder.enter("warm-up")
        self.steps(course.warmup, counted=False)
        self.recorder.enter("measure")
        self.steps(course.measured, counted=True)
        self.recorder.enter("profile")
        self.profile(course)
        self.end()

    def steps(self, indices: range, *, counted: bool) -> None:
        """Runs these steps; the times of counted ones are measured.

        Raises:
            NotFinite: training diverged.
        """
        for index in indices:
            self.recorder.enter(self.recorder.phase)
            result, seconds = _timed(partial(fetched_step, self.trainer, index), self.trainer.device)
            self._note(index, result, seconds)
            if counted:
                self.recorder.figures.step_seconds.append(seconds)
            if index == self.first:  # the first step connects the ranks and loads kernels; from now on a step is a step
                set_timeouts(self.trainer.settings.step_timeout_seconds)
                forget_peak(self.trainer.device)
            self._save(index + 1)

    def profile(self, course: Course) -> None:
        """The profiled step, and in a trial the counted one; in a training the former is a step as all others."""
        begin = time.perf_counter()
        result = profile_steps(self.trainer, self.recorder, course.profiled, course.counted)
        if self.trainer.settings.total_steps is None:
            return
        seconds = time.perf_counter() - begin
        if not course.measured:
            self.recorder.figures.step_seconds.append(seconds)
        self._note(course.profiled, result, seconds)
        self._save(course.profiled + 1)

    def end(self) -> None:
        """Waits for what is still being written.

        Raises:
            NotFinite: fp16 took not a single step.
        """
        if self.trainer.loss.scale is not None and not self.recorder.figures.losses:
            raise NotFinite(f"gradients overflowed in every step, the last with a loss scale of {self.trainer.loss_scale:g}")
        if self.checkpoints is not None:
            self.recorder.enter("save")
            self.checkpoints.finish()
        if self.curves is not None:
            self.curves.close()

    def _note(self, index: int, result: StepResult, seconds: float) -> None:
        finite, figures = result.finite, self.recorder.figures
        loss, grad_norm = (result.loss, result.grad_norm) if finite else (None, None)
        self.recorder.step(index, loss=loss, grad_norm=grad_norm, seconds=seconds)
        if result.skipped:  # it took its time and taught nothing
            return
        if not finite:
            raise NotFinite(f"step {index}: loss {result.loss}, gradient norm {result.grad_norm}")
        figures.losses.append(result.loss)
        figures.grad_norms.append(result.grad_norm)
        if self.curves is not None:
            self.curves.add(
                index,
                result,
                learning_rate=float(self.trainer.optimizer.param_groups[0]["lr"]),
                tokens_per_second=self.trainer.plan.workload.tokens_per_step / seconds,
                memory_bytes=peak_bytes(self.trainer.device) or process.data_bytes(),
            )

    def _save(self, done: int) -> None:
        if self.checkpoints is None or not self.checkpoints.due(done):
            return
        phase = self.recorder.phase
        self.recorder.enter("save")
        process.release_memory()  # what is copied for the disk lies in host memory, which is not the plan's
        self.checkpoints.save(self.trainer, done)
        self.recorder.enter(phase)


def begin(trainer: Trainer, recorder: Recorder) -> Session:
    """The session of a new trainer, with the state that it is to go on from.

    Raises:
        InputError, FileError: that state is not there, is damaged, or is of something else; or a folder cannot be written.
    """
    settings, first, checkpoints = trainer.settings, 0, None
    if settings.save or settings.resume:
        checkpoints = Checkpoints(trainer.plan, settings)
        if (source := checkpoints.source()) is not None:
            path, training = source
            first = training.step
            if settings.total_steps is not None and first >= settings.total_steps:
                raise InputError(f"--steps {settings.total_steps}", f"{path} is at step {first} already", "ask for more")
            trainer = checkpoints.load(path, training, trainer)
    curves = Curves(Path(settings.log), first) if settings.log and dist.get_rank() == 0 else None
    return Session(trainer=trainer, recorder=recorder, first=first, checkpoints=checkpoints, curves=curves)


def _timed(step: Callable[[], StepResult], device: torch.device) -> tuple[StepResult, float]:
    synchronize(device)
    begin = time.perf_counter()
    result = step()
    synchronize(device)
    return result, time.perf_counter() - begin
