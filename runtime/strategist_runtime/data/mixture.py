"""Endless datasets made from finite ones: reshuffled every epoch, and mixed by weight.

The sample at a position of the training depends on the position only, so a training can resume in any session and any layout.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

from strategist_runtime.data.sample import Dataset, Sample
from strategist_runtime.data.shuffle import mixed, shuffled

MAX_DENOMINATOR = 10**6
"""Largest denominator of the fractions that approximate weights, relative to the largest one."""


@dataclass(frozen=True, kw_only=True)
class Shuffled:
    """An endless dataset: each epoch reads all samples of ``dataset`` in an order given by the seed. An endless one is read
    unchanged.
    """

    dataset: Dataset
    seed: int
    samples: None = None

    def sample(self, number: int) -> Sample:
        """The sample at a position."""
        return self.dataset.sample(self.number(number))

    def trained(self, number: int) -> int:
        """Targets in the loss of the sample at a position."""
        return self.dataset.trained(self.number(number))

    def number(self, position: int) -> int:
        """The number of the dataset's sample at a position."""
        samples = self.dataset.samples
        if samples is None:
            return position
        epoch, offset = divmod(position, samples)
        return shuffled(offset, samples, self.seed, epoch)


class Mixture:
    """Several endless datasets by weight: each has its share of the first n positions, to within one sample.

    The first dataset gets position p if floor(p x share) increases there; the other datasets divide the remaining positions in the
    same way. So the dataset of a position and the sample's number in it depend on the position only.
    """

    samples = None

    def __init__(self, datasets: Sequence[Dataset], weights: Sequence[float]) -> None:
        self.datasets = tuple(datasets)
        ratios = [Fraction(weight / max(weights)).limit_denominator(MAX_DENOMINATOR) for weight in weights]
        self.shares = tuple(weight / sum(ratios[index:]) for index, weight in enumerate(ratios))

    def sample(self, number: int) -> Sample:
        """The sample at a position."""
        index, position = self.locate(number)
        return self.datasets[index].sample(position)

    def trained(self, number: int) -> int:
        """Targets in the loss of the sample at a position."""
        index, position = self.locate(number)
        return self.datasets[index].trained(position)

    def locate(self, number: int) -> tuple[int, int]:
        """The dataset of a position, and the position in that dataset."""
        for index, share in enumerate(self.shares):
            before, after = floor(number * share), floor((number + 1) * share)
            if after > before:
                return index, before
            number -= before
        raise AssertionError("the last dataset has all that is left")


def mixture(datasets: Sequence[Dataset], weights: Sequence[float | None], seed: int) -> Dataset:
    """The datasets made endless and mixed; those without a weight in proportion to their samples."""
    endless = [Shuffled(dataset=dataset, seed=mixed(seed, index) if index else seed) for index, dataset in enumerate(datasets)]
    if len(endless) == 1:
        return endless[0]
    return Mixture(endless, [weight or dataset.samples or 1 for dataset, weight in zip(datasets, weights, strict=True)])
