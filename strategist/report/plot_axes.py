"""Logarithmic and linear axes of plots."""

import math
from collections.abc import Sequence

from strategist.frozen import frozen

STEPS = (1, 2, 5)

FINEST = 5
"""Least number of ticks, if values are close to each other."""


@frozen
class Axis:
    """A logarithmic axis from ``low`` to ``high``; ``length`` in units of the picture."""

    low: float
    high: float
    length: float

    def at(self, value: float) -> float:
        """Position of a value along the axis."""
        return self.length * math.log(value / self.low) / math.log(self.high / self.low)

    def ticks(self) -> list[float]:
        """Powers of ten; if these are few, also twice and five times those."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        powers_of_ten = [10.0**power for power in powers if self.low <= 10.0**power <= self.high]
        if len(powers_of_ten) > 2:
            return powers_of_ten[:: math.ceil(len(powers_of_ten) / 5)]
        steps = (step * 10.0**power for power in powers for step in STEPS)
        return [value for value in steps if self.low <= value <= self.high]

    def even_ticks(self) -> list[float]:
        """Round values at equal distances if values are close to each other; else ``ticks``."""
        if len(coarse := self.ticks()) >= FINEST or self.high > 10 * self.low:
            return coarse
        power = 10.0 ** math.floor(math.log10((self.high - self.low) / FINEST))
        step = max(step for step in (0.5, *STEPS) if step * power * FINEST <= self.high - self.low) * power
        return [step * count for count in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


@frozen
class LinearAxis(Axis):
    """A linear axis from ``low`` on."""

    def at(self, value: float) -> float:
        """Position of a value along the axis."""
        return self.length * (value - self.low) / (self.high - self.low)

    def even_ticks(self) -> list[float]:
        """Round values at equal distances."""
        step = round_steps(self.high - self.low, 2 * FINEST)[1]
        return [step * count for count in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


@frozen
class CountAxis(Axis):
    """A logarithmic axis with given ``counts`` as ticks."""

    counts: Sequence[float]

    def even_ticks(self) -> list[float]:
        """The counts."""
        return list(self.counts)


def axis_of(values: Sequence[float], length: float, margin: float = 1.3) -> Axis:
    """A logarithmic axis that contains all values, with ``margin`` (a factor) at its ends."""
    return Axis(low=min(values) / margin, high=max(values) * margin, length=length)


def round_steps(high: float, count: int) -> list[float]:
    """From 0 to ``high`` in at most ``count`` round steps: 1, 2 or 5 times a power of ten."""
    min_step = high / count
    power = 10.0 ** math.floor(math.log10(min_step))
    step = next(size * power for size in (*STEPS, 10) if size * power >= min_step)
    return [step * number for number in range(math.floor(high / step) + 1)]
