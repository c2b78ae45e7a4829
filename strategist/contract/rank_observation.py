"""Observations of one rank in one step: the moment of its peak memory, and its collectives."""

from strategist.frozen import frozen


@frozen
class Traffic:
    """Collectives of one kind along one mesh axis, in one step of one rank.

    message_bytes: sum over calls of the larger of input and output. seconds: time in which one ran. exposed_seconds: the part of it
        without concurrent computation.
    """

    axis: str
    collective: str
    calls: float = 0.0
    message_bytes: float = 0.0
    seconds: float = 0.0
    exposed_seconds: float = 0.0


@frozen
class Moment:
    """Moment in a step: the pass (forward, backward or optimizer) and the module that started last in it, empty where unknown."""

    phase: str
    module: str = ""
