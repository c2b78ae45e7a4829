"""Energy of a step: device power by activity, and the power of the rest of the node."""

from collections.abc import Mapping

from strategist.contract.cluster import Cluster
from strategist.cost.candidate_arrays import Floats

COMPUTING_SHARE = 0.95
"""Share of a board's power limit drawn while it computes: a node of eight H100 (5.6 kW of boards) peaks at 8.4 kW in training
(arXiv 2412.08602), which is this with NODE_SHARE.
"""

COMMUNICATING_SHARE = 0.5
"""assumed: share of the limit during exposed collectives, whose kernels spin. Communication draws much less than computation
(arXiv 2508.14318); troughs of training are at a fifth to three quarters of the limit (arXiv 2308.12908).
"""

WAITING_SHARE = 0.2
"""assumed: share of the limit while a device waits for a pipeline, a host or a launch, with raised clocks; the lowest of those
troughs.
"""

NODE_SHARE = 0.55
"""Power of processors, memory, switches, network and fans, as a share of the boards' limits: the rest of those 8.4 kW. BLOOM's
report gives 0.59 for all that is not computing (257 MWh to 433, arXiv 2211.02001).
"""

COOLING_FACTOR = 1.2
"""Power of the building over that of its nodes (PUE): that of Jean Zay, where BLOOM was trained (arXiv 2211.02001)."""

_WAITING = ("launch", "bubble", "offload")


def limit_watts(cluster: Cluster) -> float | None:
    """Power limit of all boards; None if unknown."""
    return None if cluster.device.power_watts is None else cluster.device.power_watts * cluster.devices


def step_joules(limit: float, time: Mapping[str, Floats]) -> Floats:
    """Energy of a step from its seconds in each part (``contract.estimate.TimeParts``), with boards limited to ``limit`` watts
    in total.
    """
    zero = 0.0 * next(iter(time.values()))
    communicating = sum((seconds for name, seconds in time.items() if name.endswith("_communication")), start=zero)
    waiting = sum((time[name] for name in _WAITING), start=zero)
    step = sum(time.values(), start=zero)
    board_power = COMPUTING_SHARE * (step - communicating - waiting) + COMMUNICATING_SHARE * communicating + WAITING_SHARE * waiting
    joules: Floats = limit * COOLING_FACTOR * (board_power + NODE_SHARE * step)
    return joules
