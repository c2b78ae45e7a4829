"""One rank of an exported script; the argument ``ring`` before it registers the CPU kernel that torch's ring attention lacks."""

import runpy
import sys
from pathlib import Path

from strategist_runtime.compat.context import register_cpu_kernel
from strategist_runtime.rank_process import leave

if __name__ == "__main__":
    if sys.argv[1] == "ring":
        register_cpu_kernel()
        del sys.argv[1]
    del sys.argv[0]
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    runpy.run_path(sys.argv[0], run_name="__main__")
    leave()
