"""A rank that runs out of memory in one of several ways: ``oom_rank.py KIND PLAN --out FOLDER --settings FILE``.

The process's memory is limited as in the runtime, and exceptions are classified and recorded by the runtime's code.
"""

import argparse
import ctypes
import importlib
import os
import sys
import time
from pathlib import Path

from strategist_runtime import rank_process
from strategist_runtime.__main__ import _end, _outcome_of
from strategist_runtime.rank_record import Recorder

CAPACITY_BYTES = 2**27


def python_objects() -> None:
    held = []
    while True:
        held.append("x" * 2**20)


def numpy_array() -> None:
    import numpy

    numpy.ones(2**28)


def mapped_memory() -> None:
    import mmap

    mmap.mmap(-1, 2**30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def torch_tensor() -> None:
    import torch

    torch.ones(2**28)


def torch_data_loader() -> None:
    import torch

    class Greedy(torch.utils.data.Dataset[object]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> object:
            rank_process.limit_memory(CAPACITY_BYTES)
            return bytearray(2**30)

    next(iter(torch.utils.data.DataLoader(Greedy(), num_workers=1)))


def c_plus_plus() -> None:
    """Ends by std::terminate, without a record, like a C++ extension."""
    new = ctypes.CDLL("libstdc++.so.6")["_Znwm"]
    new.argtypes, new.restype = [ctypes.c_size_t], ctypes.c_void_p
    new(2**40)


def no_record() -> None:
    """Ends with the out-of-memory exit code, without a record."""
    os._exit(77)


def whole_machine() -> None:
    """Takes all memory of the machine, without a limit of the process."""
    rank_process.remove_memory_limit()
    held = []
    while True:
        held.append(b"x" * 2**26)


KINDS = {
    "python": python_objects, "python-at-init": python_objects, "python-all-ranks": python_objects, "numpy": numpy_array,
    "mmap": mapped_memory, "torch": torch_tensor, "loader": torch_data_loader, "c++": c_plus_plus, "no-record": no_record,
    "machine": whole_machine,
}  # fmt: skip
"""By name; the fault is in rank 1 while it measures, unless the name states otherwise."""
NEED_TORCH = ("torch", "loader")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind")
    parser.add_argument("plan")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--settings")
    options = parser.parse_args()
    rank = int(os.environ["RANK"])
    recorder = Recorder(options.out, rank)
    recorder.enter("init" if options.kind.endswith("init") else "measure")
    try:
        if rank == 1 or options.kind.endswith("all-ranks"):
            if options.kind in NEED_TORCH:  # imported before the limit is set, as in the runtime: failed imports raise any error
                importlib.import_module("torch")
            rank_process.limit_memory(CAPACITY_BYTES)
            KINDS[options.kind]()
        time.sleep(60)
    except BaseException as error:  # as the runtime's border does
        _end(recorder, *_outcome_of(error))
    sys.exit("memory did not run out")


if __name__ == "__main__":
    main()
