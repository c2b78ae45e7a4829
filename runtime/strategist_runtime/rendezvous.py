"""Rendezvous of the ranks: over loopback on one machine, otherwise as the launcher specifies."""

import os
import socket
import time
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from strategist_runtime.compat.groups import COLLECTIVE_BACKENDS

LOOPBACK = "127.0.0.1"
POLL_SECONDS = 0.02


def join_process_group(folder: Path, device_kind: str, timeout_seconds: float) -> None:
    """Makes the process group of all ranks. Each rank calls it, with the folder that they share.

    torch's own store listens on every interface without authentication. So if all ranks are on one machine, rank 0 makes a store
    that listens on loopback, and its port is in a file of the folder until all ranks have joined.

    Raises:
        TimeoutError: rank 0 did not write its port in time.
    """
    backend, timeout = COLLECTIVE_BACKENDS[device_kind], timedelta(seconds=timeout_seconds)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if os.environ.get("LOCAL_WORLD_SIZE") != os.environ["WORLD_SIZE"]:
        dist.init_process_group(backend, timeout=timeout)
        return
    port_file = folder / f"rank-0.port-{_attempt()}"
    if rank == 0:
        server_socket = socket.create_server((LOOPBACK, 0))
        port = int(server_socket.getsockname()[1])
        _write_port(port_file, port)
        listener = server_socket.detach()  # the store closes it
    else:
        port, listener = _read_port(port_file, timeout_seconds), None
    store = dist.TCPStore(LOOPBACK, port, ranks, rank == 0, timeout, wait_for_workers=False, master_listen_fd=listener)
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=timeout)
    if rank == 0:
        port_file.unlink()


def _attempt() -> str:
    """Identifies this start of the ranks by torchrun's run id and restart count."""
    run, count = (os.environ.get(f"TORCHELASTIC_{name}", "0") for name in ("RUN_ID", "RESTART_COUNT"))
    return f"{run.replace('/', '_')}-{count}"


def _write_port(path: Path, port: int) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(f"{port}", encoding="ascii")
    draft.replace(path)


def _read_port(path: Path, timeout_seconds: float) -> int:
    deadline = time.monotonic() + timeout_seconds
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"timed out after {timeout_seconds:g} s: rank 0 has not written its address")
        time.sleep(POLL_SECONDS)
    return int(path.read_text(encoding="ascii"))
