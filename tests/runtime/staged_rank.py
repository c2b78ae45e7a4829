"""Runs another rank program with messages staged through host memory: ``python -m runtime.staged_rank MODULE ARGUMENTS``."""

import runpy
import sys

from strategist_runtime.compat.groups import stage_through_host

if __name__ == "__main__":
    stage_through_host()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
