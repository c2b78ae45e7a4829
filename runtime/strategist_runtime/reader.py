"""What one data rank reads of a text: by the number of samples that the whole training has read, so that any world can go on."""

from dataclasses import dataclass

import torch

from strategist_runtime.data import Batch
from strategist_runtime.shuffle import shuffled
from strategist_runtime.text import Text


@dataclass(frozen=True, kw_only=True)
class Reader:
    """The share of data rank ``rank`` of ``ranks``. All ranks of one data rank (tp, cp, pp) read the same rows.

    Samples are read in an order of their own in each epoch, given by the seed; a text that never ends is read as it comes.
    """

    text: Text
    seed: int
    rank: int
    ranks: int

    def read(self, first: int, count: int) -> Batch:
        """This rank's rows of the ``count`` samples from the training's ``first`` on: a slice of what one process would read."""
        rows = count // self.ranks
        begin = first + self.rank * rows
        text = torch.stack([self.text.sample(self.number(place)) for place in range(begin, begin + rows)])
        return Batch(tokens=text[:, :-1].contiguous(), targets=text[:, 1:].contiguous())

    def number(self, place: int) -> int:
        """The sample that is read at a place of the training."""
        samples = self.text.samples
        if samples is None:
            return place
        epoch, within = divmod(place, samples)
        return shuffled(within, samples, self.seed, epoch)
