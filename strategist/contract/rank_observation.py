"""Observations of one rank in a step: its peak memory and its collectives."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """One kind of collective along one axis of the mesh, in a step: its calls, the sum of their messages on one rank (the larger of
    what goes in and what comes out), the seconds in which one ran, and those in which no computation ran beside it."""

    axis: str
    collective: str
    calls: float = 0.0
    message_bytes: float = 0.0
    seconds: float = 0.0
    exposed_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What a rank did: the pass (forward, backward or optimizer), and the module in it that began last, empty where none says."""

    phase: str
    module: str = ""
