"""Replaces the program of each rank by ``rank.py``, as soon as a launcher has started its interpreter.

First on ``PYTHONPATH``: launchers run unchanged, and processes with ``LOCAL_RANK`` become probes.
"""

import os
import sys

if "PROBE" in os.environ and "LOCAL_RANK" in os.environ and "PROBE_RANK" not in os.environ:
    os.environ["PROBE_RANK"] = "1"
    rank = os.path.join(os.path.dirname(__file__), "rank.py")
    os.execv(sys.executable, [sys.executable, rank, *sys.orig_argv[1:]])
