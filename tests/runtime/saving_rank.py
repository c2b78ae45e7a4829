"""One rank that saves repeatedly on a failing disk until it finishes or dies; started by test_checkpoint_saves.

``saving_rank FOLDER ORDER``: FOLDER has the plan; ORDER is JSON (:class:`Order`). Every tensor of a state has its step number as
value, so the next session detects a mixture of two steps.
"""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from strategist_runtime.compat.dtensor import local
from strategist_runtime.mesh import make_meshes
from strategist_runtime.rank_process import leave
from strategist_runtime.training.checkpoint import Checkpoints
from strategist_runtime.training.checkpoint_state import state_of
from strategist_runtime.training.trainer import Trainer, make_trainer

from strategist.contract import codec
from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan

ON_ONE_RANK = ("broken", "slow", "twice")
ON_THE_DISK = ("full", "read-only")
ROOM_BYTES = 65536


@dataclass(frozen=True, kw_only=True)
class Order:
    """``saves`` attempts on the disk at ``place``, with ``faults`` of these kinds. After ``death_seconds`` the ``victim`` dies: a
    rank, or all ranks for -1. The state of step ``saved`` is known to be saved.
    """

    plan: str
    place: str
    saves: int
    seed: int
    saved: int
    faults: tuple[str, ...] = ()
    victim: int | None = None
    death_seconds: float = 0.0


class Faults:
    """Calls of this process that fail, are slow, or run twice."""

    def __init__(self) -> None:
        self.kind = ""
        for name in ("fsync", "rename", "mkdir", "unlink", "rmdir"):
            setattr(os, name, self._with_faults(name, getattr(os, name)))

    def _with_faults(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any, **named: Any) -> Any:
            if self.kind == "broken" and name == "fsync":
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            if self.kind == "slow":
                time.sleep(0.02)
            found = call(*arguments, **named)
            return call(*arguments, **named) if self.kind == "twice" else found

        return act


def fill(trainer: Trainer, value: float) -> None:
    for tensor in state_of(trainer).values():
        local(tensor).fill_(value)


def check(trainer: Trainer, value: float) -> None:
    for name, tensor in state_of(trainer).items():
        assert bool((local(tensor) == value).all()), f"wrong: {name} is not the value of step {value:g}"


def fault_of(order: Order, number: int, ranks: int) -> tuple[str, int]:
    """The fault of a save, and the affected rank; equal on all ranks."""
    chances = random.Random(order.seed * 10**6 + number)
    return (chances.choice(order.faults) if order.faults and chances.random() < 0.3 else ""), chances.randrange(ranks)


def break_disk(place: Path, kind: str, number: int) -> None:
    """Breaks the disk for all ranks from now on."""
    if kind == "full":
        free = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
        (place / "ballast").write_bytes(bytes(max(0, free - random.Random(number).randrange(ROOM_BYTES))))
    if kind == "read-only":  # with a second mount, since the first one has an open file
        for options in (["--bind", place / "save"], ["-o", "remount,bind,ro"]):
            subprocess.run(["mount", *options, place / "save"], check=True)


def repair_disk(place: Path) -> None:
    """Removes all faults of the disk."""
    while subprocess.run(["umount", place / "save"], check=False, capture_output=True).returncode == 0:
        pass
    (place / "ballast").unlink(missing_ok=True)


def die_later(order: Order) -> None:
    """Kills the victim after a delay, in whatever state."""

    def strike() -> None:
        time.sleep(order.death_seconds)
        if order.victim == -1:
            os.killpg(os.getpgrp(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    if order.victim in (-1, dist.get_rank()):
        threading.Thread(target=strike, daemon=True).start()


def main(folder: Path, order: Order) -> None:
    """Saves, and appends each result to a file of the folder."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    plan, place, rank = codec.load(Plan, order.plan), Path(order.place), dist.get_rank()
    settings = TrialSettings(total_steps=10**6, save=str(place / "save"), save_every=1)
    layout, knobs = plan.candidate.layout, plan.candidate.knobs
    meshes = make_meshes(layout, "cpu", rank, experts=plan.model.moe is not None, offload=knobs.offload)
    trainer = make_trainer(plan, settings, meshes, torch.device("cpu"))
    if rank == 0 and set(ON_THE_DISK) & set(order.faults):
        repair_disk(place)  # an earlier session may have died with a broken disk
    dist.barrier()
    messages: list[str] = []
    checkpoints = Checkpoints(plan, settings, messages.append)
    source, first = checkpoints.source(), 0
    if source is None:
        assert not order.saved, f"wrong: step {order.saved} was saved, and nothing can be read"
        trainer.step(trainer.batch(0))
    else:
        first = source[1].step
        assert first >= order.saved, f"wrong: step {order.saved} was saved, and step {first} is the newest"
        trainer = checkpoints.load(*source, trainer)
        check(trainer, first)
    faults = Faults()
    die_later(order)
    for step in range(first + 1, first + order.saves + 1):
        kind, affected = fault_of(order, step, layout.world_size)
        fill(trainer, step)
        if kind in ON_THE_DISK and rank == 0:
            break_disk(place, kind, step)
        dist.barrier()
        faults.kind = kind if kind in ON_ONE_RANK and rank == affected else ""
        checkpoints.save(trainer, step)
        fill(trainer, -1)  # the next step changes the tensors that were passed to be saved
        checkpoints.finish()
        faults.kind = ""
        dist.barrier()
        if rank == 0:
            if kind in ON_THE_DISK:
                repair_disk(place)
            with (folder / "results").open("a", encoding="utf-8") as file:
                file.write(
                    json.dumps({"step": step, "kind": kind, "saved": checkpoints.unsaved is None, "messages": messages}) + "\n"
                )
            messages.clear()
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Order(**json.loads(sys.argv[2])))
