"""Runs exported scripts on processes forked from this one, which has imported torch: importing it is most of what they do.

A job is a line of JSON on standard input: ranks, script, its arguments, the folder for what it says, and what it needs before it
starts. The answer is its exit code.
"""

import json
import os
import runpy
import sys
from importlib import import_module
from typing import Any

from strategist_runtime.compat_context import register_cpu_kernel

from runtime import forked

ME = "formats.script_ranks"
IMPORTED = ("checkpoint.state_dict", "algorithms._checkpoint.checkpoint_wrapper", "pipelining", "tensor.parallel", "fsdp")
"""Of torch.distributed, what scripts take long to import."""


def main() -> None:
    for name in IMPORTED:
        import_module(f"torch.distributed.{name}")
    for line in sys.stdin:
        job = json.loads(line)
        if (child := os.fork()) == 0:
            start(job)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def start(job: dict[str, Any]) -> None:
    """Forks the ranks; what they say goes into two files."""
    for stream, name in ((1, "out"), (2, "errors")):
        file = os.open(os.path.join(job["folder"], name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, stream)
    if job["ring"]:
        register_cpu_kernel()
    os.chdir(job["folder"])
    forked.main(job["ranks"], ME, [job["script"], *job["arguments"]])


if __name__ == "__main__" and len(sys.argv) == 1:
    main()
elif __name__ == "__main__":  # a rank
    script = sys.argv[1]
    del sys.argv[0]
    runpy.run_path(script, run_name="__main__")
    sys.stdout.flush()
    os._exit(0)
