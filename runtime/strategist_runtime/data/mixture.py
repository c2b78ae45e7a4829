"""Endless texts built from finite ones: reshuffled every epoch, and mixed by weight.

Which sample is read at a place of the training follows from the place alone, so any session and any layout can go on from it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

from strategist_runtime.data.sample import Sample, Text
from strategist_runtime.data.shuffle import mixed, shuffled

FINEST = 10**6
"""Weights over the largest one are fractions with denominators up to here."""


@dataclass(frozen=True, kw_only=True)
class Shuffled:
    """A text without end: each epoch reads all samples of ``text``, in an order that the seed gives. One that never ends by itself
    is read as it comes."""

    text: Text
    seed: int
    samples: None = None

    def sample(self, number: int) -> Sample:
        """The sample at a place."""
        return self.text.sample(self.number(number))

    def trained(self, number: int) -> int:
        """Targets of the sample at a place that count."""
        return self.text.trained(self.number(number))

    def number(self, place: int) -> int:
        """The sample of the text that is read at a place."""
        samples = self.text.samples
        if samples is None:
            return place
        epoch, within = divmod(place, samples)
        return shuffled(within, samples, self.seed, epoch)


class Mixture:
    """Several endless texts by weight: of the first n places each text has its share, to within one sample for each text.

    The first text gets place p where floor(p x share) goes up, the others divide the rest among themselves in the same way; so the
    text of a place and the sample's number in it follow from the place.
    """

    samples = None

    def __init__(self, texts: Sequence[Text], weights: Sequence[float]) -> None:
        self.texts = tuple(texts)
        exact = [Fraction(weight / max(weights)).limit_denominator(FINEST) for weight in weights]
        self.shares = tuple(weight / sum(exact[index:]) for index, weight in enumerate(exact))

    def sample(self, number: int) -> Sample:
        """The sample at a place."""
        text, inside = self.place(number)
        return self.texts[text].sample(inside)

    def trained(self, number: int) -> int:
        """Targets of the sample at a place that count."""
        text, inside = self.place(number)
        return self.texts[text].trained(inside)

    def place(self, number: int) -> tuple[int, int]:
        """The text that a place belongs to, and the place in that text."""
        for text, share in enumerate(self.shares):
            before, after = floor(number * share), floor((number + 1) * share)
            if after > before:
                return text, before
            number -= before
        raise AssertionError("the last text has all that is left")


def mixture(texts: Sequence[Text], weights: Sequence[float | None], seed: int) -> Text:
    """The texts without end and mixed; where they have no weights, in proportion to their samples."""
    endless = [Shuffled(text=text, seed=mixed(seed, index) if index else seed) for index, text in enumerate(texts)]
    if len(endless) == 1:
        return endless[0]
    return Mixture(endless, [weight or text.samples or 1 for text, weight in zip(texts, weights, strict=True)])
