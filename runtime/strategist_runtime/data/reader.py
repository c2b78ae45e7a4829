"""What one data rank reads of a text: by the number of samples that the whole training has read, so that any world can go on."""

from dataclasses import dataclass

import torch

from strategist_runtime.data.batch import Batch
from strategist_runtime.data.documents import numbered
from strategist_runtime.data.shuffle import shuffled
from strategist_runtime.data.text import Text


@dataclass(frozen=True, kw_only=True)
class Reader:
    """The share of data rank ``rank`` of ``ranks``. All ranks of one data rank (tp, cp, pp) read the same rows.

    Samples are read in an order of their own in each epoch, given by the seed; a text that never ends is read as it comes.
    ``document_end`` is the token that ends a document, None where a sample is one.
    """

    text: Text
    seed: int
    rank: int
    ranks: int
    document_end: int | None = None

    def read(self, first: int, count: int) -> Batch:
        """This rank's rows of the ``count`` samples from the training's ``first`` on: a slice of what one process would read."""
        rows = count // self.ranks
        begin = first + self.rank * rows
        text = torch.stack([self.text.sample(self.number(place)) for place in range(begin, begin + rows)])
        tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
        documents = None if self.document_end is None else numbered(tokens, self.document_end)
        return Batch(tokens=tokens, targets=targets, documents=documents)

    def number(self, place: int) -> int:
        """The sample that is read at a place of the training."""
        samples = self.text.samples
        if samples is None:
            return place
        epoch, within = divmod(place, samples)
        return shuffled(within, samples, self.seed, epoch)
