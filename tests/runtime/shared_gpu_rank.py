"""Runs a rank on a machine with one GPU that its ranks share: ``python -m runtime.shared_gpu_rank MODULE ARGUMENTS``.

The CPU stands in for the GPU; NCCL is its communication library, and works on no CPU.
"""

import runpy
import sys

import torch
from strategist_runtime import trial
from strategist_runtime.compat import device
from strategist_runtime.compat.groups import COLLECTIVE_BACKENDS


def the_gpu(kind: str, local_rank: int) -> torch.device:
    """The only GPU."""
    if (kind, local_rank) != ("cuda", 0):
        raise RuntimeError(f"invalid device ordinal {local_rank}")
    return torch.device("cpu")


if __name__ == "__main__":
    device.local_device_count = lambda kind: 1
    trial.this_device = the_gpu
    COLLECTIVE_BACKENDS["cpu"] = COLLECTIVE_BACKENDS["cuda"]
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
