"""A rank that joins its peers with torch's gloo and then fails: ``gloo_rank.py FAULT STEP PLAN --out FOLDER --settings FILE``.

The rank writes the runtime's progress files, and trains nothing; rank 1 has the fault at that step.
"""

import argparse
import ctypes
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from strategist_runtime import rank_process
from strategist_runtime.__main__ import _end, _outcome_of
from strategist_runtime.rank_record import Recorder

from strategist.contract import codec
from strategist.contract.measurement import Outcome, TrialSettings

STEP_SECONDS = 0.05


class GlooRank:
    def __init__(self, fault: str, at: int, folder: Path, settings: TrialSettings) -> None:
        self.fault, self.at, self.folder, self.settings = fault, at, folder, settings
        self.recorder = Recorder(folder, int(os.environ["RANK"]))
        rank_process.on_terminate(lambda: _end(self.recorder, Outcome.CANCELLED, f"ended by SIGTERM in {self.recorder.phase}"))

    def run(self) -> None:
        self.recorder.enter("init")
        if self.fault == "missing" and self.recorder.rank == 1:
            self.note_fault()
            time.sleep(600)
        dist.init_process_group("gloo", timeout=timedelta(seconds=300))
        for step in range(self.settings.warmup_steps + self.settings.steps):
            self.recorder.enter("warm-up" if step < self.settings.warmup_steps else "measure")
            begun = time.monotonic()
            self.step(step)
            seconds = time.monotonic() - begun
            self.recorder.step(step, loss=1.0, grad_norm=1.0, seconds=seconds)
            if step >= self.settings.warmup_steps:
                self.recorder.figures.step_seconds.append(seconds)
        self.recorder.figures.peak_memory_bytes = 1
        self.recorder.enter("done")

    def step(self, step: int) -> None:
        time.sleep(10 * STEP_SECONDS if self.fault == "slow" and self.recorder.rank == 1 else STEP_SECONDS)
        if step == self.at and self.recorder.rank == 1 and self.fault not in ("slow", "missing"):
            self.note_fault()
            getattr(self, self.fault.replace("-", "_"))()
        dist.all_reduce(torch.ones(4))

    def note_fault(self) -> None:
        (self.folder / "fault-time").write_text(f"{time.monotonic()}")

    def mismatch(self) -> None:
        """Calls all-gather while the peer is in an all-reduce."""
        dist.all_gather([torch.ones(9), torch.ones(9)], torch.ones(9))

    def skip(self) -> None:
        """Skips the collective in which the peer waits."""
        time.sleep(600)

    def hold_the_gil(self) -> None:
        ctypes.PyDLL(None).sleep(600)

    def stop(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def segv(self) -> None:
        ctypes.string_at(0)

    def exit137(self) -> None:
        os._exit(137)

    def throw(self) -> None:
        raise ValueError("the layer is not there")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("fault")
    parser.add_argument("at", type=int)
    parser.add_argument("plan")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--settings")
    options = parser.parse_args()
    rank_process.die_with_parent()
    rank = GlooRank(options.fault, options.at, options.out, codec.load(TrialSettings, options.settings))
    try:
        rank.run()
    except BaseException as error:  # as the runtime's border does
        _end(rank.recorder, *_outcome_of(error))
    _end(rank.recorder, Outcome.OK)


if __name__ == "__main__":
    main()
    sys.exit(1)
