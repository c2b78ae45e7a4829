"""The script for hosts starts a training that fails again, after all hosts have ended its ranks."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from launch.starts import plan
from strategist.formats.pytorch import write
from strategist.launch import hosts
from strategist.launch.catalog import with_job
from strategist.launch.job import JobOptions

SHELL = """
import os, shutil, signal, subprocess, sys, threading
def forward():
    shutil.copyfileobj(sys.stdin.buffer, child.stdin)
    child.stdin.close()
signal.signal(signal.SIGTERM, lambda *_: os._exit(255))
words, variables = ["bash", "-c", sys.argv[2]], {**os.environ, "HOST": sys.argv[1]}
child = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True, env=variables, bufsize=0)
threading.Thread(target=forward, daemon=True).start()
os._exit(child.wait())
"""
"""A remote shell like ssh, to this machine: the command outlives it, with a closed standard input."""


@pytest.mark.parametrize(("failures", "code", "starts"), [(0, 0, 1), (1, 0, 2), (9, 7, 2)])
def test_a_failed_training_restarts_at_most_n_times(failures: int, code: int, starts: int, tmp_path: Path) -> None:
    """With a start script that fails so many times on the second host, while the first one's goes on until it is ended."""
    asked, count, ended = plan(2, 1), tmp_path / "starts", tmp_path / "ended"
    (tmp_path / "shell.py").write_text(SHELL)
    remote = f"{shlex.join((sys.executable, '-S', str(tmp_path / 'shell.py')))} {{host}} {{command}}"
    options = JobOptions(hosts="a,b", remote_shell=remote, restarts=1, workdir=str(tmp_path / "there"))
    for file in with_job(asked, write(asked, {}), "hosts", options).files:
        text = file.text.replace(f"sleep {hosts.GRACE_SECONDS + 2}", "sleep 0.5")
        if file.name == "train.sh":
            fails = f"echo x >> starts; (($(wc -l < starts) > {failures})) || exit 7; touch done"
            fails = f"until [[ -e waiting ]]; do sleep 0.1; done; {fails}"
            waits = "trap 'rm waiting; echo x >> ended; exit 1' TERM; touch waiting; until [[ -e done ]]; do sleep 0.1; done"
            here = shlex.quote(str(tmp_path))
            text = f"#!/bin/bash\ncd {here}\nif [[ $HOST == b ]]; then {fails}; else {waits}; fi\n"
        (tmp_path / file.name).write_text(text)
    done = subprocess.run(["bash", "hosts.sh"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, count.read_text().count("x")) == (code, starts), done.stderr
    assert done.stderr.count("of at most 2 ended with exit code 7") == min(failures, starts)
    assert (ended.read_text().count("x") if ended.exists() else 0) == min(failures, starts)
