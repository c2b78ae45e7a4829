"""Options that the libraries below torch read from the environment of a rank, before it starts."""

from collections.abc import Mapping

from strategist.contract.options import KnobValue, Options
from strategist.contract.plan import Plan

ALLOCATOR = {"PYTORCH_ALLOC_CONF": "expandable_segments:True", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
"""torch's CUDA allocator asks for the second name first, its general settings for the first (CUDAAllocatorConfig.h)."""

VARIABLES: Mapping[str, Mapping[KnobValue, Mapping[str, str]]] = {
    "nccl_algorithm": {"ring": {"NCCL_ALGO": "Ring"}, "tree": {"NCCL_ALGO": "Tree"}},
    "nccl_p2p": {"off": {"NCCL_P2P_DISABLE": "1"}},
    "nccl_nvls": {"off": {"NCCL_NVLS_ENABLE": "0"}},
    "expandable_segments": {True: ALLOCATOR},
}
"""What each value of an option sets; a default sets nothing, so that a user's own variable stands.

Source: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
"""

NUMBERS = {"nccl_socket_threads": "NCCL_SOCKET_NTHREADS", "cuda_connections": "CUDA_DEVICE_MAX_CONNECTIONS"}
"""Variables that take an option's number as it is."""


def environment(plan: Plan) -> dict[str, str]:
    """What the ranks of ``plan`` need in their environment, over whatever is there; empty on CPU, where it has no effect."""
    if plan.cluster.device.kind != "cuda":
        return {}
    options = plan.candidate.options
    found: dict[str, str] = {}
    for name, values in VARIABLES.items():
        found |= values.get(getattr(options, name), {})
    for name, variable in NUMBERS.items():
        if getattr(options, name) != getattr(Options, name):
            found[variable] = str(getattr(options, name))
    return found
