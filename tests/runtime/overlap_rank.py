"""One rank that reduces a large tensor, first without and then with concurrent matmuls; started by test_profile."""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from strategist_runtime.measure.profile import Profile, profiled
from strategist_runtime.rank_process import leave

SIZE, REPEATS = 4_000_000, 3


def profile_both() -> dict[str, Profile]:
    """The profile of both steps."""
    large, square = torch.ones(SIZE), torch.ones(600, 600)

    def alone() -> None:
        for _ in range(REPEATS):
            dist.all_reduce(large)

    def overlapped() -> None:
        for _ in range(REPEATS):
            work = dist.all_reduce(large, async_op=True)
            while not work.is_completed():
                square @ square
            work.wait()

    found = {}
    for step in (alone, overlapped):
        step()
        dist.barrier()
        found[step.__name__] = profiled(step, torch.device("cpu"))
    return found


def figures(profile: Profile) -> dict[str, float]:
    return {
        name: getattr(profile, name) for name in ("profiled_step_seconds", "communication_seconds", "exposed_communication_seconds")
    }


def main(target: Path) -> None:
    """Writes rank 0's measurements."""
    dist.init_process_group("gloo")
    found = profile_both()
    if dist.get_rank() == 0:
        target.write_text(json.dumps({name: figures(profile) for name, profile in found.items()}), encoding="utf-8")
    dist.barrier()
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
