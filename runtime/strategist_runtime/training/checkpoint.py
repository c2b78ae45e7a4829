"""Checkpoints of a training: all ranks write them through torch.distributed.checkpoint, in the steps of ``checkpoint_protocol``,
and load them under any plan.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any, cast

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.staging import DefaultStager

from strategist.contract import checkpoint as contract, codec
from strategist.contract.checkpoint import Training, name_of
from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan
from strategist.errors import FileError
from strategist_runtime.compat.device import library_versions, staging, usable_stager
from strategist_runtime.compat.groups import checkpoint_group
from strategist_runtime.training.checkpoint_protocol import OWNER, Disk, Rank, Steps, in_one_line, run_protocol
from strategist_runtime.training.checkpoint_state import copies_of, finished_state_of, make_states, reload_copies, state_of
from strategist_runtime.training.retention import checkpoints_to_remove
from strategist_runtime.training.trainer import Trainer

Source = tuple[Path, Training]


@dataclass(frozen=True, kw_only=True)
class Save:
    """The content of one save: the ``state`` of this rank, and its description ``training``."""

    state: dict[str, Tensor]
    training: Training
    group: dist.ProcessGroup

    def write(self, folder: Path) -> Steps[None]:
        """Writes this rank's files; torch has all ranks write together, and reports the failure of any rank to all."""
        yield partial(_write, self.state, dcp.FileSystemWriter(folder), self.group)

    def description(self, files: Mapping[str, int]) -> str:
        return codec.dumps(replace(self.training, files=dict(files)))

    def superseded(self) -> Sequence[Path]:
        settings = self.training.settings
        return checkpoints_to_remove(settings.save, self.training.step, settings.keep, settings.keep_best)


class Checkpoints:
    """Loads the checkpoint from which a session starts, and saves new ones. Every rank constructs one and calls the same methods.

    Its collectives have a separate process group, since they run concurrently with those of a step. ``remark`` is called on the
    rank that owns the folder, with each line for the user.
    """

    def __init__(self, plan: Plan, settings: TrialSettings, remark: Callable[[str], None] = print) -> None:
        self.plan, self.settings, self.remark = plan, settings, remark
        self.every = settings.save_every or plan.candidate.options.checkpoint_interval
        self.group = checkpoint_group(settings.save_timeout_seconds)
        self.disk = Disk()
        self.rank = Rank(storage=self.disk, folder=Path(settings.save), owner=dist.get_rank() == OWNER, token=token_hex(4))
        kind = plan.candidate.options.checkpoint
        self.stager = None if kind == "sync" else DefaultStager(staging(pinned=kind == "async_pinned"))
        self.writer = None if kind == "sync" else ThreadPoolExecutor(1, "checkpoint")
        self.pending: tuple[Training, Future[str]] | None = None
        self.unsaved: Training | None = None

    def source(self) -> Source | None:
        """The checkpoint from which the session continues, the same on all ranks: the newest in its own folder (after a restart),
        otherwise the one to resume; None for a new training.

        Raises:
            StrategistError: the checkpoint to resume does not exist, is damaged, or belongs to another model or workload; or
                another session saves in the folder.
        """
        if self.settings.save:
            self.rank, found = self._run(self.rank.begin(self._find_source))
        else:
            found = self._run(self.rank.find_on_owner(self._find_source))
        if found is not None:
            path, training = found
            contract.check(training, path, self.plan.model, self.plan.workload)
            if self.rank.owner and str(path.parent) in (self.settings.save, self.settings.resume):
                for damaged in contract.complete_checkpoints(path.parent)[
                    contract.complete_checkpoints(path.parent).index(path) + 1 :
                ]:
                    self.remark(f"{damaged} is damaged: the training continues from {path.name}")
        return found

    def _find_source(self) -> Source | None:
        found = contract.newest(self.settings.save) if self.settings.save else None
        if found is None and self.settings.resume:
            path = contract.find(self.settings.resume)
            found = path, contract.read(path)
        return found

    def load(self, path: Path, training: Training, trainer: Trainer) -> Trainer:
        """The trainer with the state of a checkpoint, however it is sharded now.

        Raises:
            FileError: the checkpoint is damaged.
        """
        reader = dcp.FileSystemReader(path)
        stored_metadata = _metadata(reader, path)
        try:
            make_states(trainer, stored_metadata)
            # Two loads: a last stage's copy of the embedding has the same name as the embedding, which this rank may hold as well.
            for state in (state_of(trainer), copies_of(trainer)):
                if missing := sorted(set(state) - set(stored_metadata)):
                    raise FileError(path, f"holds no {missing[0]}: it is damaged, or of another model")
                dcp.load(state, storage_reader=reader, process_group=self.group)
        except CheckpointException as error:
            raise FileError(path, f"cannot be read, it is damaged: {first_failure(error)}") from None
        except (OSError, EOFError, RuntimeError) as error:
            raise FileError(path, f"cannot be read, it is damaged: {error}") from None
        reload_copies(trainer)
        if trainer.loss.scale is not None and training.loss_scale is not None:
            trainer.loss.scale.value, trainer.loss.scale.good_steps = training.loss_scale, training.loss_scale_steps
        return replace(trainer, first_sample=training.samples - training.step * self.plan.workload.global_batch)

    def due(self, done: int) -> bool:
        """Whether a checkpoint follows after ``done`` steps."""
        return bool(self.settings.save) and (done % self.every == 0 or done == self.settings.total_steps)

    def save(self, trainer: Trainer, done: int, evaluation_loss: float | None = None) -> None:
        """Saves the state after ``done`` steps. If the plan saves asynchronously, it returns before the state is on disk. A
        failed save is reported, and a later one tries again.
        """
        self._save(trainer, self._description(trainer, done, evaluation_loss))

    def _save(self, trainer: Trainer, training: Training) -> None:
        self.finish()
        state, problem = finished_state_of(trainer), ""
        if self.stager is not None:
            self.stager = usable_stager(self.stager)
            try:
                state = cast(dict[str, Tensor], self.stager.stage(state))
            except Exception as error:  # such as out of memory: peers must learn of it
                problem = in_one_line(error)
        steps = self.rank.save(training.step, problem, Save(state=state, training=training, group=self.group))
        if self.writer is None:
            self._record_result(training, self._run(steps))
        else:
            self.pending = training, self.writer.submit(self._run, steps)

    def finish(self) -> None:
        """Waits for the end of an asynchronous save."""
        pending, self.pending = self.pending, None
        if pending is not None:
            self._record_result(pending[0], pending[1].result())

    def close(self, trainer: Trainer) -> None:
        """Ends the session: retries the last save if it failed, and releases the folder's lock.

        Raises:
            FileError: the last state is not saved.
        """
        self.finish()
        if self.unsaved is not None:
            self._save(trainer, self.unsaved)
            self.finish()
        self.disk.unlock()
        if self.unsaved is not None:
            raise FileError(self.settings.save, f"the state after step {self.unsaved.step} could not be saved; make room, resume")

    def _record_result(self, training: Training, problem: str) -> None:
        self.unsaved = training if problem else None
        if problem and self.rank.owner:
            self.remark(f"{name_of(training.step)} could not be saved, the training continues: {problem}")

    def _run(self, steps: Steps[Any]) -> Any:
        return run_protocol(steps, self._all_gather)

    def _all_gather(self, value: object) -> list[Any]:
        values: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(values, value, group=self.group)
        return values

    def _description(self, trainer: Trainer, done: int, evaluation_loss: float | None) -> Training:
        scale = trainer.loss.scale
        return Training(
            step=done,
            samples=trainer.first_sample + done * self.plan.workload.global_batch,
            settings=self.settings,
            model=self.plan.model,
            workload=self.plan.workload,
            plan_id=self.plan.id,
            ranks=dist.get_world_size(),
            files={},
            loss_scale=None if scale is None else scale.value,
            loss_scale_steps=0 if scale is None else scale.good_steps,
            versions=dict(library_versions()),
            evaluation_loss=evaluation_loss,
        )


def _write(state: dict[str, Tensor], writer: dcp.FileSystemWriter, group: dist.ProcessGroup) -> None:
    """Writes this rank's files; they are on disk when it returns.

    Raises:
        OSError: a rank failed to write.
    """
    try:
        dcp.save(state, storage_writer=writer, process_group=group)
    except CheckpointException as error:
        raise OSError(first_failure(error)) from None


def _metadata(reader: dcp.FileSystemReader, path: Path) -> dict[str, Any]:
    """The tensors in a checkpoint: torch's metadata by name."""
    try:
        found: dict[str, Any] = reader.read_metadata().state_dict_metadata
    except Exception as error:  # a damaged pickle can raise any exception
        raise FileError(path, f"cannot be read, it is damaged: {type(error).__name__}: {error}") from None
    return found


def first_failure(error: CheckpointException) -> str:
    """The error of the first rank that failed, in one line."""
    for rank, (failure, _) in sorted(error.failures.items()):
        text = " ".join(str(failure).split())
        return f"rank {rank}: {type(failure).__name__}: {text}"
    return "no rank says why"
