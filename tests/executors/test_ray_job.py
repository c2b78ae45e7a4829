"""The command on a Ray node ends with its worker."""

import ast
import subprocess
import sys
from pathlib import Path

from strategist.executors import engine

WORKER = """
import ctypes, signal, subprocess, sys
{ends}
program = "import time; print('began', flush=True); time.sleep(5); print('went on')"
subprocess.run([sys.executable, "-c", program], preexec_fn=_ends_with_worker)
"""


def test_the_command_of_a_node_ends_with_its_worker() -> None:
    """Also if the worker is killed. The code is extracted from ``ray_job``, which only a machine with Ray can import."""
    code = ast.parse((Path(engine.__file__).parent / "ray_job.py").read_text(encoding="utf-8")).body
    names = {"PR_SET_PDEATHSIG", "_ends_with_worker"}
    ends = "\n".join(ast.unparse(node) for node in code if (getattr(node, "name", "") or ast.unparse(node).split(" ")[0]) in names)
    with subprocess.Popen([sys.executable, "-c", WORKER.format(ends=ends)], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "began\n"
        worker.kill()
        assert worker.stdout.read() == ""
