"""Training session: the first step of one process, what is recorded of each step, and when the state is saved."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

from strategist.contract import codec
from strategist.contract.measurement import Course
from strategist.errors import InputError
from strategist_runtime import rank_process
from strategist_runtime.compat.device import peak_bytes, reset_peak_memory, synchronize
from strategist_runtime.compat.groups import set_timeouts
from strategist_runtime.rank_record import NotFinite, Recorder, Stopped
from strategist_runtime.training.checkpoint import Checkpoints
from strategist_runtime.training.curves import Curves, Row
from strategist_runtime.training.evaluation import Evaluation, make_evaluation
from strategist_runtime.training.profiling import load_and_step, profile_steps
from strategist_runtime.training.trainer import StepResult, Trainer

MAX_SKIPPED = 25
"""Most consecutive steps that may be skipped: enough for fp16 to find its loss scale, and few enough not to waste hours."""


@dataclass(kw_only=True)
class Session:
    """A session of a trainer, from step ``first`` on. A trial is a session without checkpoints. ``skipped`` counts the
    consecutive skipped steps up to now.
    """

    trainer: Trainer
    recorder: Recorder
    first: int = 0
    checkpoints: Checkpoints | None = None
    curves: Curves | None = None
    evaluation: Evaluation | None = None
    skipped: int = 0

    def run(self) -> None:
        """Runs all steps of the session, in their phases: warm-up, measure, profile.

        Raises:
            NotFinite: training diverged.
            Stopped: the training was requested to end, and is saved.
        """
        if self.first == self.trainer.settings.total_steps:
            self.recorder.remark(f"all {self.first} steps were done and saved before")
            self.end()
            return
        course = self.trainer.settings.course(self.first)
        self.recorder.enter("warm-up")
        self.steps(course.warmup, counted=False)
        self.recorder.enter("measure")
        self.steps(course.measured, counted=True)
        self.recorder.enter("profile")
        self.profile(course)
        self.end()

    def steps(self, indices: range, *, counted: bool) -> None:
        """Runs the steps ``indices``; the times of ``counted`` ones are recorded.

        Raises:
            NotFinite: training diverged.
            Stopped: the training was requested to end, and is saved.
        """
        for index in indices:
            self.recorder.enter(self.recorder.phase)
            result, seconds = _timed(partial(load_and_step, self.trainer, index), self.trainer.device)
            if counted:
                self.recorder.figures.step_seconds.append(seconds)
            if index == self.first:  # the first step also connects the ranks and loads kernels
                set_timeouts(self.trainer.settings.step_timeout_seconds)
                reset_peak_memory(self.trainer.device)
            self._finish(index, result, seconds)

    def profile(self, course: Course) -> None:
        """Runs the profiled step, and in a trial the counted one. In a training the profiled step is also a training step like
        all others.
        """
        begin = time.perf_counter()
        result = profile_steps(self.trainer, self.recorder, course.profiled, course.counted)
        if self.trainer.settings.total_steps is None:
            return
        seconds = time.perf_counter() - begin
        if not course.measured:
            self.recorder.figures.step_seconds.append(seconds)
        self._finish(course.profiled, result, seconds)

    def end(self) -> None:
        """Ends the session: waits for the checkpoint that is being written, and closes the curves.

        Raises:
            NotFinite: no step has updated the parameters.
            FileError: the last state could not be saved.
        """
        if not self.recorder.figures.losses and self.first != self.trainer.settings.total_steps:
            scale = f", the last with a loss scale of {self.trainer.loss_scale:g}" if self.trainer.loss.scale is not None else ""
            raise NotFinite(f"gradients overflowed in every step{scale}")
        if self.checkpoints is not None:
            self.recorder.enter("save")
            self.checkpoints.close(self.trainer)
        if self.curves is not None:
            self.curves.close()

    def _finish(self, index: int, result: StepResult, seconds: float) -> None:
        """Completes a step: records its figures, then evaluates and saves if that is due."""
        memory_bytes = peak_bytes(self.trainer.device) or max(0, rank_process.data_bytes() - self.recorder.idle_bytes)
        loss, grad_norm = (result.loss, result.grad_norm) if result.finite else (None, None)
        self.recorder.step(index, loss=loss, grad_norm=grad_norm, seconds=seconds, memory_bytes=memory_bytes)
        self._check_result(index, result)
        done = index + 1
        stops = result.stop and done != self.trainer.settings.total_steps
        saves = self.checkpoints is not None and (stops or self.checkpoints.due(done))
        evaluation_loss = self._evaluate(index, saves=saves)
        if self.curves is not None:
            self.curves.add(self._row(index, result, seconds, memory_bytes, evaluation_loss))
        if saves:
            self._save(done, evaluation_loss)
        if stops:
            self._stop(done)

    def _check_result(self, index: int, result: StepResult) -> None:
        figures = self.recorder.figures
        description = f"step {index}: loss {result.loss}, gradient norm {result.grad_norm}"
        if result.skipped:  # its time counts, its loss does not
            self.skipped += 1
            if self.skipped == MAX_SKIPPED:
                raise NotFinite(f"{description}, the {MAX_SKIPPED}th in a row")
            return
        self.skipped = 0
        if not result.finite:
            raise NotFinite(description)
        figures.losses.append(result.loss)
        figures.grad_norms.append(result.grad_norm)

    def _evaluate(self, index: int, *, saves: bool) -> float | None:
        if self.evaluation is None or not self.evaluation.due(index + 1, saves=saves):
            return None
        phase = self.recorder.phase
        self.recorder.enter("evaluate")
        loss = self.evaluation.loss(lambda: self.recorder.enter("evaluate"))
        self.recorder.step(index, evaluation_loss=loss if math.isfinite(loss) else None)
        self.recorder.enter(phase)
        return loss if math.isfinite(loss) else None

    def _row(self, index: int, result: StepResult, seconds: float, memory_bytes: int, evaluation_loss: float | None) -> Row:
        plan, estimate = self.trainer.plan, self.trainer.plan.estimate
        samples = self.trainer.first_sample + (index + 1) * plan.workload.global_batch
        return Row(
            step=index,
            samples=samples,
            tokens=samples * plan.workload.seq_len,
            loss=result.loss if result.finite else None,
            grad_norm=result.grad_norm if result.finite else None,
            learning_rate=float(self.trainer.optimizer.param_groups[0]["lr"]),
            evaluation_loss=evaluation_loss,
            seconds=seconds,
            tokens_per_second=plan.workload.tokens_per_step / seconds,
            mfu=estimate.mfu * estimate.step_seconds / seconds if estimate.step_seconds > 0 else None,
            memory_bytes=memory_bytes,
            skipped=result.skipped,
        )

    def _save(self, done: int, evaluation_loss: float | None) -> None:
        assert self.checkpoints is not None
        phase = self.recorder.phase
        self.recorder.enter("save")
        rank_process.remove_memory_limit()  # so that the memory limit does not apply to the copy of the state in host memory
        self.checkpoints.save(self.trainer, done, evaluation_loss)
        self.recorder.enter(phase)

    def _stop(self, done: int) -> None:
        """Ends a training on request, once its state is on disk."""
        settings = self.trainer.settings
        if self.checkpoints is not None:
            self.checkpoints.finish()
        if self.curves is not None:
            self.curves.close()
        raise Stopped(f"stopped after step {done} of {settings.total_steps}, as asked; to go on: --resume {settings.save}")


def begin(trainer: Trainer, recorder: Recorder) -> Session:
    """The session of a new trainer, with the state of the checkpoint from which it continues, if any.

    Raises:
        InputError, FileError: the checkpoint does not exist, is damaged, or belongs to another training; or a folder cannot be
            written.
    """
    settings, first, checkpoints = trainer.settings, 0, None
    if settings.save or settings.resume:
        checkpoints = Checkpoints(trainer.plan, settings, recorder.remark)
        if (source := checkpoints.source()) is not None:
            path, training = source
            first = training.step
            is_finished = settings.total_steps is not None and first >= settings.total_steps
            may_be_finished = settings.export or path.parent == Path(settings.save)  # of this training, after a restart
            if is_finished and not (first == settings.total_steps and may_be_finished):
                raise InputError(f"--steps {settings.total_steps}", f"{path} is at step {first} already", "ask for more")
            trainer = checkpoints.load(path, training, trainer)
    recorder.stop.armed = bool(settings.save)
    trainer = replace(trainer, stop_requested=recorder.stop.is_requested)
    return Session(
        trainer=trainer,
        recorder=recorder,
        first=first,
        checkpoints=checkpoints,
        curves=_curves(trainer, first) if settings.log and dist.get_rank() == 0 else None,
        evaluation=make_evaluation(trainer),
    )


def _curves(trainer: Trainer, first: int) -> Curves:
    settings, plan = trainer.settings, trainer.plan
    config = {"plan": codec.encode(plan), "settings": codec.encode(settings)}
    return Curves(Path(settings.log), first, wandb=settings.wandb, config=config)


def _timed(step: Callable[[], StepResult], device: torch.device) -> tuple[StepResult, float]:
    synchronize(device)
    begin = time.perf_counter()
    result = step()
    synchronize(device)
    return result, time.perf_counter() - begin
