"""A case's process: case_process.py FILE|-m MODULE ARGUMENTS imports what is slow, and runs at the first line of standard input."""

import runpy
import sys

from strategist_runtime import trial as _trial  # noqa: F401  imports torch and most of the runtime

if __name__ == "__main__":
    if not sys.stdin.readline():
        sys.exit("no turn came: whatever started this process has ended")
    if sys.argv[1] == "-m":
        sys.argv = sys.argv[2:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = sys.argv[1:]
        runpy.run_path(sys.argv[0], run_name="__main__")
