"""One rank of a machine's profile: ``torchrun --standalone --nproc-per-node N -m strategist_runtime.machine.profile --out DIR``."""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from strategist.contract import codec
from strategist.contract.machine import MachineRecord
from strategist_runtime import rank_process
from strategist_runtime.rank_record import Recorder

TIMEOUT_SECONDS = 60.0


def main(arguments: Sequence[str]) -> None:
    """Measures on this rank; rank 0 writes ``machine.json``."""
    parser = argparse.ArgumentParser(prog="strategist_runtime.machine.profile", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the record")
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True, help="what to measure")
    options = parser.parse_args(arguments)
    rank_process.die_with_parent()
    recorder = Recorder(options.out, int(os.environ["RANK"]))
    if options.device == "cpu":
        rank_process.count_memory_closely()  # as in a trial; it changes the cost of allocations
    record = _measure(options.device, recorder)
    if recorder.rank == 0:
        codec.save(record, options.out / "machine.json")
    recorder.enter("done")


def _measure(kind: str, recorder: Recorder) -> MachineRecord:
    # Imported here: the phase is recorded before torch's import begins.
    import torch
    import torch.distributed as dist

    from strategist_runtime.compat import profile as compat_profile
    from strategist_runtime.compat.device import library_versions, this_device
    from strategist_runtime.compat.groups import initialize_device_and_groups
    from strategist_runtime.machine import communication, compute
    from strategist_runtime.rendezvous import join_process_group

    begin = time.monotonic()
    recorder.enter("init")
    device = this_device(kind, int(os.environ["LOCAL_RANK"]))
    join_process_group(recorder.folder, kind, TIMEOUT_SECONDS)
    initialize_device_and_groups(device)
    ranks, total, usable = dist.get_world_size(), *compat_profile.memory_of(device)
    recorder.enter("measure")
    matmuls = tuple(compute.matmuls(device))
    recorder.enter("measure")
    attention = tuple(compute.attentions(device))
    streaming, elementwise = compute.memory_rates(device)
    layer, host = compute.layer_seconds(device), compute.host_rate(device)
    update = compute.host_update_rate(device, ranks)
    recorder.enter("measure")
    collectives = []
    for sample in communication.collectives(device):
        collectives.append(sample)
        recorder.enter("measure")
    dist.barrier()
    dist.destroy_process_group()
    return MachineRecord(
        device_kind=kind, device_name=torch.cuda.get_device_name(device) if kind == "cuda" else "CPU", ranks=ranks,
        memory_bytes=total, usable_memory_bytes=usable, matmuls=matmuls, attention=attention, streaming_bytes_per_second=streaming,
        elementwise_bytes_per_second=elementwise, layer_seconds=layer, host_bytes_per_second=host,
        host_optimizer_bytes_per_second=update, collectives=tuple(collectives), wall_seconds=time.monotonic() - begin,
        versions=dict(library_versions()),
    )  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
