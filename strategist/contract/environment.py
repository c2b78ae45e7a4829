"""Environment variables of ranks: options that libraries below torch read before a rank starts."""

from collections.abc import Mapping

from strategist.contract.options import KnobValue, Options
from strategist.contract.plan import Plan

ALLOCATOR = {"PYTORCH_ALLOC_CONF": "expandable_segments:True", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
"""Both names of the variable: the CUDA allocator reads the second first, general settings the first (CUDAAllocatorConfig.h)."""

VARIABLES: Mapping[str, Mapping[KnobValue, Mapping[str, str]]] = {
    "nccl_algorithm": {"ring": {"NCCL_ALGO": "Ring"}, "tree": {"NCCL_ALGO": "Tree"}},
    "nccl_p2p": {"off": {"NCCL_P2P_DISABLE": "1"}},
    "nccl_nvls": {"off": {"NCCL_NVLS_ENABLE": "0"}},
    "expandable_segments": {True: ALLOCATOR},
}
"""Variables by value of an option. A default sets none, so that a user's own variable is kept.

Source: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
"""

NUMBERS = {"nccl_socket_threads": "NCCL_SOCKET_NTHREADS", "cuda_connections": "CUDA_DEVICE_MAX_CONNECTIONS"}
"""Variables that are set to the number of an option."""


def environment(plan: Plan) -> dict[str, str]:
    """Variables to set for the ranks of ``plan``, in addition to the inherited environment; empty for devices other than CUDA."""
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
