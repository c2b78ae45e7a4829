"""Energy of a step: device power by activity, and the power of the rest of the node."""

from collections.abc import Mapping

from strategist.contract.cluster import Cluster
from strategist.cost.candidate_arrays import Floats

COMPUTING = 0.95
"""Share of a board's limit that it draws while it computes: a node of eight H100 (5.6 kW of boards) peaks at 8.4 kW in training
(arXiv 2412.08602), which is this with NODE_SHARE."""

COMMUNICATING = 0.5
"""assumed: share while a rank waits in a collective that nothing hides, whose kernels spin. Communication draws much less than
computation (arXiv 2508.14318): troughs of training were seen at a fifth to three quarters of the limit (arXiv 2308.12908)."""

WAITING = 0.2
"""assumed: share while a device waits for a pipeline, a host or a launch, its clocks up; the lowest of those troughs."""

NODE_SHARE = 0.55
"""Share of the boards' limits that processors, memory, switches, network and fans draw besides: the rest of those 8.4 kW. BLOOM's
report counts 0.59 of them for all that is not computing (257 MWh to 433, arXiv 2211.02001)."""

COOLING = 1.2
"""Power of the building over that of its nodes (PUE): of Jean Zay, where BLOOM was trained (arXiv 2211.02001)."""

_WAITING = ("launch", "bubble", "offload")


def limit_watts(cluster: Cluster) -> float | None:
    """Power limit of all boards; None where not known."""
    return None if cluster.device.power_watts is None else cluster.device.power_watts * cluster.devices


def step_joules(limit: float, time: Mapping[str, Floats]) -> Floats:
    """Energy of a step by its seconds in each part (``contract.estimate.TimeParts``), of boards that may draw ``limit`` watts."""
    zero = 0.0 * next(iter(time.values()))
    communicating = sum((seconds for name, seconds in time.items() if name.endswith("_communication")), start=zero)
    waiting = sum((time[name] for name in _WAITING), start=zero)
    step = sum(time.values(), start=zero)
    drawn = COMPUTING * (step - communicating - waiting) + COMMUNICATING * communicating + WAITING * waiting
    joules: Floats = limit * COOLING * (drawn + NODE_SHARE * step)
    return joules
