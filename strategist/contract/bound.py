"""Bound: lower bound of a step's time, by resource."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, kw_only=True)
class ResourceSeconds:
    """Seconds that a step's compulsory work keeps each resource busy: matmuls and attention (with what a pipeline takes to fill),
    device memory, links between devices of a node and between nodes, and the link to the host, each in its busier direction."""

    compute: float
    memory: float
    intra_node: float
    inter_node: float
    host_link: float

    @property
    def longest(self) -> float:
        """Seconds of the resource that takes longest."""
        return max(self.compute, self.memory, self.intra_node, self.inter_node, self.host_link)


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The least seconds of a step: at line rates and peaks, and with links at their measured bus bandwidths."""

    at_line_rate: ResourceSeconds
    at_measured_rate: ResourceSeconds

    @property
    def seconds(self) -> float:
        """The longest of the resources: whatever overlaps, a step is not over before."""
        return self.at_line_rate.longest

    @property
    def practical_seconds(self) -> float:
        """The same with links at their measured bus bandwidths."""
        return self.at_measured_rate.longest

    @property
    def limited_by(self) -> str:
        """The resource that takes longest, by its name."""
        return max((field.name for field in fields(ResourceSeconds)), key=lambda name: float(getattr(self.at_line_rate, name)))
