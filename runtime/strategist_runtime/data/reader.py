"""Batches of one data rank, addressed by the number of samples read so far, so that training can resume on any world size."""

from dataclasses import dataclass

import torch

from strategist_runtime.data.batch import IGNORED, Batch
from strategist_runtime.data.sample import Dataset, Sample, padded


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Reads the samples of data rank ``rank`` of ``ranks``. All ranks of one data rank (tp, cp, pp) read the same rows.

    Samples are read in the order of ``dataset``; beyond its end they are padding, which does not count in the loss.
    """

    dataset: Dataset
    rank: int
    ranks: int

    def read(self, first: int, count: int) -> Batch:
        """This rank's rows of the training's samples ``first`` to ``first + count``: a slice of what a single process would
        read.
        """
        rows = count // self.ranks
        begin = first + self.rank * rows
        samples = [self._sample(number) for number in range(begin, begin + rows)]
        ids = torch.stack([sample.ids for sample in samples])
        tokens, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
        for row, sample in zip(targets, samples, strict=True):
            if sample.trained is not None:
                row[~sample.trained[1:]] = IGNORED
        documents = None
        if any(sample.documents is not None for sample in samples):
            single_document = torch.zeros_like(ids[0])
            documents = torch.stack([single_document if sample.documents is None else sample.documents for sample in samples])[
                :, :-1
            ]
        trained = self.trained(first, count)
        all_are_targets = trained == count * tokens.shape[1]
        return Batch(tokens=tokens, targets=targets, documents=documents, trained=None if all_are_targets else trained / self.ranks)

    def trained(self, first: int, count: int) -> int:
        """The number of targets in the loss of these samples, over all ranks."""
        return sum(self.dataset.trained(number) for number in range(first, first + count) if self._exists(number))

    def _sample(self, number: int) -> Sample:
        return self.dataset.sample(number) if self._exists(number) else padded(len(self.dataset.sample(0).ids))

    def _exists(self, number: int) -> bool:
        return self.dataset.samples is None or number < self.dataset.samples
