"""Published rows with the largest prediction errors."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from strategist.accuracy.error_metrics import PricedCase


@dataclass(frozen=True, kw_only=True)
class Miss:
    """A predicted and a published value of ``figure``: ``step_seconds`` or ``peak_memory_bytes``."""

    judged: PricedCase
    figure: str
    predicted: float
    published: float

    @property
    def ratio(self) -> float:
        """Predicted over published."""
        return self.predicted / self.published

    @property
    def size(self) -> float:
        """Absolute logarithm of the ratio: half and double are equally far."""
        return abs(math.log(self.ratio)) if self.ratio > 0 else math.inf


def misses(judged: PricedCase) -> Iterator[Miss]:
    """The predictions for a row whose values were published."""
    for name in ("step_seconds", "peak_memory_bytes"):
        if published := getattr(judged.case, name):
            yield Miss(judged=judged, figure=name, predicted=getattr(judged, name), published=published)


def worst(judged: Iterable[PricedCase], count: int) -> tuple[Miss, ...]:
    """The ``count`` rows with the largest errors, largest first, each with its worst prediction."""
    found = [max(own, key=lambda miss: miss.size) for item in judged if (own := list(misses(item)))]
    return tuple(sorted(found, key=lambda miss: -miss.size)[:count])
