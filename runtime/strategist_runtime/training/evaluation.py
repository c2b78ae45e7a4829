"""The loss on held-out data: the mean over its tokens, the same in every layout."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from strategist.errors import InputError
from strategist_runtime.data.reader import Reader
from strategist_runtime.data.sources import SourceOpener
from strategist_runtime.parallel.data_parallel import reshard
from strategist_runtime.training.trainer import Trainer


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Evaluates the first ``samples`` of ``reader`` in global batches of the training's size; the last one is padded."""

    trainer: Trainer
    reader: Reader
    samples: int

    def due(self, done: int, *, saves: bool) -> bool:
        """Whether to evaluate after ``done`` steps; ``saves``: a checkpoint follows."""
        settings = self.trainer.settings
        every = settings.evaluation_every
        return done == settings.total_steps or bool(every and done % every == 0) or (saves and settings.keep_best > 0)

    def loss(self, on_batch: Callable[[], None]) -> float:
        """The mean loss over all targets that are not ignored; ``on_batch`` is called after each batch, to report progress."""
        count, trained = self.trainer.plan.workload.global_batch, self.reader.trained(0, self.samples) / self.reader.ranks
        total = torch.zeros((), device=self.trainer.device)
        for first in range(0, self.samples, count):
            total += self.trainer.evaluate(self.reader.read(first, count), trained)
            on_batch()
        reshard(self.trainer.parts)
        return self.trainer.mean(total)


def make_evaluation(trainer: Trainer) -> Evaluation | None:
    """The evaluation in a trainer's settings; None if they name no evaluation data.

    Raises:
        InputError, FileError: the data cannot be read.
    """
    settings, meshes = trainer.settings, trainer.meshes
    if not settings.evaluation_data:
        return None
    dataset = SourceOpener(plan=trainer.plan, settings=settings).evaluation_dataset()
    samples, batch = dataset.samples or 0, trainer.plan.workload.global_batch
    if settings.evaluation_batches is not None:
        samples = min(samples, settings.evaluation_batches * batch)
    if not samples:
        raise InputError("--eval-data", "holds no sample", "give it more text")
    reader = Reader(dataset=dataset, rank=meshes.data_rank, ranks=meshes.data_ranks)
    return Evaluation(trainer=trainer, reader=reader, samples=samples)
