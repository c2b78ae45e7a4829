"""Facts about torch and the machine, as one line of JSON: ``python -m strategist_runtime.machine.doctor``."""

import json
from itertools import permutations
from typing import Any

import torch
import torch.distributed as dist


def about() -> dict[str, Any]:
    """Versions, back ends, and the properties of each GPU that decide whether it can be used."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "",
        "hip": torch.version.hip or "",
        "cuda_available": torch.cuda.is_available(),
        "devices": count,
        "gloo": dist.is_available() and dist.is_gloo_available(),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if dist.is_available() and dist.is_nccl_available() else "",
        "architectures": torch.cuda.get_arch_list() if count else [],
        "capabilities": [f"sm_{major}{minor}" for major, minor in map(torch.cuda.get_device_capability, range(count))],
        "no_peer_access": sum(not torch.cuda.can_device_access_peer(*pair) for pair in permutations(range(count), 2)),
        "threads": torch.get_num_threads(),
    }


if __name__ == "__main__":
    print(json.dumps(about()))
