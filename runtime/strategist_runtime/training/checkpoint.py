"""A training's state on disk and back, through torch.distributed.checkpoint: each rank writes and reads the parts that it holds.

States go by the plain names of parameters, so another plan finds them again: ``model.<name>``, ``optimizer.<name>.<key>``. They lie
where DTensor says. What PowerSGD still owes is no part of it: that belongs to the buckets of one layout, and begins anew.
"""

import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.staging import DefaultStager

from strategist.contract import checkpoint as contract
from strategist.contract import codec
from strategist.contract.checkpoint import DESCRIPTION, PARTIAL, Training
from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan
from strategist.errors import FileError
from strategist_runtime.compat.device import library_versions, reopened, staging
from strategist_runtime.compat.dtensor import local
from strategist_runtime.compat.groups import checkpoint_group
from strategist_runtime.compat.modules import persistent_buffers
from strategist_runtime.model.decoder import plain_name, plain_names
from strategist_runtime.parallel.streaming import Streaming
from strategist_runtime.training.trainer import Trainer

MODEL, OPTIMIZER = "model", "optimizer"
EMBEDDING, HEAD = "embedding.weight", "head.weight"


class Checkpoints:
    """The checkpoints of one session: where it begins, and what it leaves. Every rank makes one, and calls the same methods.

    Its collectives have a process group of their own, since they run beside those of a step.
    """

    def __init__(self, plan: Plan, settings: TrialSettings) -> None:
        self.plan, self.settings = plan, settings
        self.every = settings.save_every or plan.candidate.options.checkpoint_interval
        self.group = checkpoint_group(settings.save_timeout_seconds)
        kind = plan.candidate.options.checkpoint
        self.stager = None if kind == "sync" else DefaultStager(staging(pinned=kind == "async_pinned"))
        self.begun: Future[Any] | None = None

    def source(self) -> tuple[Path, Training] | None:
        """What the session goes on from: the newest of its own, after a restart, or what it was told to resume; one for all ranks.

        Raises:
            InputError, FileError: there is none where one was named, it is damaged, or of something else.
        """
        told: list[Any] = [None]
        if dist.get_rank() == 0:
            own = contract.whole(self.settings.save) if self.settings.save else ()
            told = [own[-1] if own else None]
            if not own and self.settings.resume:
                told = [contract.find(self.settings.resume)]
        dist.broadcast_object_list(told, src=0, group=self.group)
        if told[0] is None:
            return None
        training = contract.read(told[0])
        contract.check(training, told[0], self.plan.model, self.plan.workload)
        return told[0], training

    def load(self, path: Path, training: Training, trainer: Trainer) -> Trainer:
        """The trainer with the state of a checkpoint, wherever its pieces lie now.

        Raises:
            FileError: it is damaged.
        """
        reader = dcp.FileSystemReader(path)
        there = _metadata(reader, path)
        try:
            make_states(trainer, there)
            # A last stage's copy of the embedding asks for the same name as the embedding, which this rank may hold as well.
            for state in (state_of(trainer), copies_of(trainer)):
                if missing := sorted(set(state) - set(there)):
                    raise FileError(path, f"holds no {missing[0]}: it is damaged, or of another model")
                dcp.load(state, storage_reader=reader, process_group=self.group)
        except CheckpointException as error:
            raise FileError(path, f"cannot be read, it is damaged: {first_failure(error)}") from None
        except (OSError, EOFError, RuntimeError) as error:
            raise FileError(path, f"cannot be read, it is damaged: {error}") from None
        _settle(trainer)
        if trainer.loss.scale is not None and training.loss_scale is not None:
            trainer.loss.scale.value, trainer.loss.scale.good_steps = training.loss_scale, training.loss_scale_steps
        return replace(trainer, first_sample=training.samples - training.step * self.plan.workload.global_batch)

    def due(self, done: int) -> bool:
        """Whether a checkpoint follows the step that is the ``done``-th."""
        return bool(self.settings.save) and (done % self.every == 0 or done == self.settings.total_steps)

    def save(self, trainer: Trainer, done: int) -> None:
        """Writes the state after ``done`` steps; returns before it is on disk where the plan saves asynchronously."""
        self.finish()
        folder = Path(self.settings.save)
        partial_folder = folder / (contract.name_of(done) + PARTIAL)
        complete = partial(self._complete, partial_folder, self._description(trainer, done))
        if dist.get_rank() == 0:
            tidy(folder)
        writer = dcp.FileSystemWriter(partial_folder)
        state = finished_state_of(trainer)
        if self.stager is None:
            try:
                dcp.save(state, storage_writer=writer, process_group=self.group)
            except CheckpointException as error:
                raise _not_saved(partial_folder, error) from None
            complete()
            return
        self.stager = reopened(self.stager)
        written = dcp.async_save(state, storage_writer=writer, process_group=self.group, async_stager=self.stager)
        assert isinstance(written, Future)  # of the whole; stagers that stage beside the step answer otherwise
        self.begun = _then(written, complete)

    def finish(self) -> None:
        """Waits until what was begun lies on disk.

        Raises:
            RuntimeError: it could not be written.
        """
        begun, self.begun = self.begun, None
        if begun is not None:
            try:
                begun.result()
            except CheckpointException as error:
                raise _not_saved(Path(self.settings.save), error) from None

    def _description(self, trainer: Trainer, done: int) -> Training:
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
        )

    def _complete(self, written: Path, training: Training) -> None:
        """Rank 0, once all ranks have written: from here on the checkpoint counts, and the oldest may go."""
        if dist.get_rank() != 0:
            return
        files = {item.name: item.stat().st_size for item in sorted(written.iterdir())}
        described = replace(training, files=files)
        codec.save(described, written / DESCRIPTION)
        _to_disk(written)
        final = written.with_name(written.name.removesuffix(PARTIAL))
        shutil.rmtree(final, ignore_errors=True)
        written.replace(final)
        _to_disk(final.parent)
        for old in contract.whole(final.parent)[: -self.settings.keep]:
            shutil.rmtree(old, ignore_errors=True)


def _metadata(reader: dcp.FileSystemReader, path: Path) -> dict[str, Any]:
    """Names in a checkpoint, and what torch says of them."""
    try:
        found: dict[str, Any] = reader.read_metadata().state_dict_metadata
    except Exception as error:  # what a damaged pickle raises can be of any kind
        raise FileError(path, f"cannot be read, it is damaged: {type(error).__name__}: {error}") from None
    return found


def _then(written: Future[Any], act: Callable[[], None]) -> Future[None]:
    """Done when ``act`` is, after ``written``; a future's own waiters don't wait for what follows it."""
    both: Future[None] = Future()

    def follow(done: Future[Any]) -> None:
        try:
            done.result()
            act()
        except BaseException as error:  # whatever it was, who waits must learn of it
            both.set_exception(error)
        else:
            both.set_result(None)

    written.add_done_callback(follow)
    return both


def finished_state_of(trainer: Trainer) -> dict[str, Tensor]:
    """``state_of``, once updates beside the passes are done."""
    if isinstance(trainer.pipeline, Streaming):
        trainer.pipeline.finish()
    return state_of(trainer)


def state_of(trainer: Trainer) -> dict[str, Tensor]:
    """What this rank holds of the state, by name, as it lies in the model and the optimizer; copies of the embedding left out."""
    found = dict(_buffers(trainer))
    for plain, parameter in plain_names(trainer.parts):
        if not _is_copy(plain, trainer):
            found |= _states(plain, parameter, trainer)
    return found


def copies_of(trainer: Trainer) -> dict[str, Tensor]:
    """The state of a last stage's own copy of the embedding, by the names of the embedding's."""
    found: dict[str, Tensor] = {}
    for plain, parameter in plain_names(trainer.parts):
        if _is_copy(plain, trainer):
            found |= _states(EMBEDDING, parameter, trainer)
    return found


def _is_copy(plain: str, trainer: Trainer) -> bool:
    return plain == HEAD and trainer.pipeline is not None and trainer.plan.model.tied_embeddings


def _buffers(trainer: Trainer) -> Iterator[tuple[str, Tensor]]:
    """Those that training changes, such as the bias of a router, and no tables that any rank can make again."""
    for part in trainer.parts:
        for path, module in part.named_modules():
            for name, buffer in persistent_buffers(module):
                yield f"{MODEL}.{plain_name(f'{path}.{name}')}", buffer


def _states(plain: str, parameter: Tensor, trainer: Trainer) -> dict[str, Tensor]:
    found = {f"{MODEL}.{plain}": parameter.detach()}
    for key, value in trainer.optimizer.state.get(parameter, {}).items():
        if isinstance(value, Tensor):
            found[f"{OPTIMIZER}.{plain}.{key}"] = value
    return found


def make_states(trainer: Trainer, there: dict[str, Any]) -> None:
    """Gives the optimizer the tensors that a checkpoint has states for, laid out as their parameters are."""
    state: dict[Tensor, dict[str, Tensor]] = defaultdict(dict)
    kept: dict[str, dict[str, TensorStorageMetadata]] = {}
    for name, metadata in there.items():
        if name.startswith(OPTIMIZER + "."):
            plain, _, key = name.removeprefix(OPTIMIZER + ".").rpartition(".")
            kept.setdefault(plain, {})[key] = metadata
    fused = {parameter for group in trainer.optimizer.param_groups if group.get("fused") for parameter in group["params"]}
    for plain, parameter in plain_names(trainer.parts):
        for key, metadata in kept.get(EMBEDDING if _is_copy(plain, trainer) else plain, {}).items():
            dtype = metadata.properties.dtype
            if metadata.size == parameter.shape:
                made = torch.zeros_like(parameter, dtype=dtype, requires_grad=False)
            else:  # the count of steps, which fused kernels want where the parameter is
                made = torch.zeros(metadata.size, dtype=dtype, device=local(parameter).device if parameter in fused else "cpu")
            state[parameter][key] = made
    trainer.optimizer.__setstate__({"state": state, "param_groups": trainer.optimizer.param_groups})


def _settle(trainer: Trainer) -> None:
    """Tells those who keep values of their own that they were changed: optimizers and stages in host memory."""
    optimizer = trainer.optimizer
    optimizer.__setstate__({"state": optimizer.state, "param_groups": optimizer.param_groups})  # as load_state_dict ends
    if isinstance(trainer.pipeline, Streaming):
        trainer.pipeline.refresh()


def tidy(folder: Path) -> None:
    """Removes what a save that was cut off left behind.

    Raises:
        FileError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(folder, f"cannot be written: {error.strerror}; choose another folder") from None
    for left in folder.glob(f"step-*{PARTIAL}"):
        shutil.rmtree(left, ignore_errors=True)


def first_failure(error: CheckpointException) -> str:
    """What the first rank to fail says, in one line."""
    for rank, (failure, _) in sorted(error.failures.items()):
        text = " ".join(str(failure).split())
        return f"rank {rank}: {type(failure).__name__}: {text}"
    return "no rank says why"


def _not_saved(folder: Path, error: CheckpointException) -> RuntimeError:
    return RuntimeError(f"{folder}: the checkpoint could not be written: {first_failure(error)}")


def _to_disk(folder: Path) -> None:
    """Has the system write a folder's entries."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
