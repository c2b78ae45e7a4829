"""Endless texts made from finite ones: reshuffled every epoch, and mixed by weight.

The sample at a position of the training depends on the position only, so a training can resume in any session and any layout.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

from strategist_runtime.data.sample import Sample, Text
from strategist_runtime.data.shuffle import mixed, shuffled

MAX_DENOMINATOR = 10**6
"""Largest denominator of the fractions that approximate weights, relative to the largest one."""


@dataclass(frozen=True, kw_only=True)
class Shuffled:
    """An endless text: each epoch reads all samples of ``text`` in an order given by the seed. An endless ``text`` is read
    unchanged.
    """

    text: Text
    seed: int
    samples: None = None

    def sample(self, number: int) -> Sample:
        """The sample at a position."""
        return self.text.sample(self.number(number))

    def trained(self, number: int) -> int:
        """Targets in the loss of the sample at a position."""
        return self.text.trained(self.number(number))

    def number(self, position: int) -> int:
        """The number of the text's sample at a position."""
        samples = self.text.samples
        if samples is None:
            return position
        epoch, offset = divmod(position, samples)
        return shuffled(offset, samples, self.seed, epoch)


class Mixture:
    """Several endless texts by weight: each text has its share of the first n positions, to within one sample for each text.

    The first text gets position p if floor(p x share) increases there; the other texts divide the remaining positions in the
    same way. So the text of a position and the sample's number in it depend on the position only.
    """

    samples = None

    def __init__(self, texts: Sequence[Text], weights: Sequence[float]) -> None:
        self.texts = tuple(texts)
        ratios = [Fraction(weight / max(weights)).limit_denominator(MAX_DENOMINATOR) for weight in weights]
        self.shares = tuple(weight / sum(ratios[index:]) for index, weight in enumerate(ratios))

    def sample(self, number: int) -> Sample:
        """The sample at a position."""
        text, position = self.locate(number)
        return self.texts[text].sample(position)

    def trained(self, number: int) -> int:
        """Targets in the loss of the sample at a position."""
        text, position = self.locate(number)
        return self.texts[text].trained(position)

    def locate(self, number: int) -> tuple[int, int]:
        """The text of a position, and the position in that text."""
        for text, share in enumerate(self.shares):
            before, after = floor(number * share), floor((number + 1) * share)
            if after > before:
                return text, before
            number -= before
        raise AssertionError("the last text has all that is left")


def mixture(texts: Sequence[Text], weights: Sequence[float | None], seed: int) -> Text:
    """The texts made endless and mixed; those without a weight in proportion to their samples."""
    endless = [Shuffled(text=text, seed=mixed(seed, index) if index else seed) for index, text in enumerate(texts)]
    if len(endless) == 1:
        return endless[0]
    return Mixture(endless, [weight or text.samples or 1 for text, weight in zip(texts, weights, strict=True)])
