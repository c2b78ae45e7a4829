"""Bound: lower bound of a step's time, by resource."""

from dataclasses import fields

from strategist.frozen import frozen


@frozen
class ResourceSeconds:
    """Seconds that a step's compulsory work keeps each resource busy.

    compute: matmuls and attention, including the time to fill a pipeline. memory: device memory. intra_node, inter_node: links
        between devices, in the busier direction. host_link: link between device and host, in the busier direction.
    """

    compute: float
    memory: float
    intra_node: float
    inter_node: float
    host_link: float

    @property
    def longest(self) -> float:
        """Seconds of the resource that takes longest."""
        return max(self.compute, self.memory, self.intra_node, self.inter_node, self.host_link)


@frozen
class Bound:
    """Lower bound of a step in seconds: at peaks and line rates, and with links at their measured bus bandwidths."""

    at_line_rate: ResourceSeconds
    at_measured_rate: ResourceSeconds

    @property
    def seconds(self) -> float:
        """Seconds of the busiest resource: with perfect overlap a step still takes this long."""
        return self.at_line_rate.longest

    @property
    def practical_seconds(self) -> float:
        """Seconds of the busiest resource, with links at their measured bus bandwidths."""
        return self.at_measured_rate.longest

    @property
    def limited_by(self) -> str:
        """Name of the resource that determines the bound."""
        return max((field.name for field in fields(ResourceSeconds)), key=lambda name: float(getattr(self.at_line_rate, name)))
