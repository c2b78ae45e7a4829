"""Published rows with the largest prediction errors."""

import math
from collections.abc import Iterable, Iterator

from strategist.accuracy.error_metrics import PricedCase
from strategist.frozen import frozen


@frozen
class Miss:
    """A predicted and a published value of ``figure``: ``step_seconds`` or ``peak_memory_bytes``."""

    priced_case: PricedCase
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


def misses(priced_case: PricedCase) -> Iterator[Miss]:
    """The predictions for a row whose values were published."""
    for name in ("step_seconds", "peak_memory_bytes"):
        if published := getattr(priced_case.case, name):
            yield Miss(priced_case=priced_case, figure=name, predicted=getattr(priced_case, name), published=published)


def worst(priced_cases: Iterable[PricedCase], count: int) -> tuple[Miss, ...]:
    """The ``count`` rows with the largest errors, largest first, each with its worst prediction."""
    largest = [max(case_misses, key=lambda miss: miss.size) for item in priced_cases if (case_misses := list(misses(item)))]
    return tuple(sorted(largest, key=lambda miss: -miss.size)[:count])
