"""Listening sockets: none by default, and those of a trial's ranks on loopback only."""

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from chaos import Chaos

from strategist.contract.measurement import Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.executors.local import LocalExecutor
from strategist.executors.processes import tagged

SETTINGS = TrialSettings(steps=4, warmup_steps=1)
LISTENS = "0A"
"""TCP_LISTEN in /proc/net/tcp."""

LOOPBACK = {"0100007F", "00000000000000000000000001000000"}


def listening(pids: set[int]) -> set[str]:
    """Addresses on which these processes listen, in the kernel's hexadecimal notation."""
    sockets = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENS:
                sockets[f"socket:[{words[9]}]"] = words[1].partition(":")[0]
    return {sockets[held] for pid in pids for held in _open(pid) if held in sockets}


def _open(pid: int) -> list[str]:
    try:
        return [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:  # the process ended meanwhile
        return []


@pytest.mark.weekly
@pytest.mark.torch
@pytest.mark.chaos("Security", "listening sockets of the processes of a real trial")
def test_the_ranks_of_a_trial_listen_on_loopback_only(plan: Plan, tmp_path: Path, chaos: Chaos) -> None:
    trials, seen = chaos.size(1, 10), set[str]()
    for number in range(trials):
        outcomes: list[Outcome] = []

        def run(folder: Path = tmp_path / f"{number}", outcomes: list[Outcome] = outcomes) -> None:
            shown = replace(plan, cluster=replace(plan.cluster, name=f"2xcpu-{folder.name}")).identified()
            outcomes.append(LocalExecutor(study="sockets").execute(shown, folder, SETTINGS).outcome)

        thread = threading.Thread(target=run)
        thread.start()
        while thread.is_alive():
            seen |= listening({pid for pid, tag in tagged("sockets.").items() if f".{os.getpid()}." in tag})
            time.sleep(0.01)
        assert outcomes == [Outcome.OK]
    assert seen, "no listening socket was seen"
    elsewhere = seen - LOOPBACK
    assert elsewhere == set()
    chaos.found(f"{len(elsewhere)} addresses other than loopback in {trials} trials of 2 ranks")


@pytest.mark.chaos("Security", "listening sockets of a plan command and of an agent server over stdio")
def test_no_socket_listens_by_default(tmp_path: Path, chaos: Chaos) -> None:
    seen, looks = set[str](), 0
    with started("plan", "--model", "tiny", "--gpus", "2xcpu") as planning:
        while planning.poll() is None:
            seen, looks = seen | listening({planning.pid}), looks + 1
            time.sleep(0.01)
    assert planning.returncode == 0
    with started("mcp", "--workspace", str(tmp_path)) as serving:
        assert serving.stdin is not None
        assert serving.stdout is not None
        client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}
        serving.stdin.write(json.dumps(hello) + "\n")
        serving.stdin.flush()
        assert "serverInfo" in serving.stdout.readline()
        seen, looks = seen | listening({serving.pid}), looks + 1
        serving.stdin.close()
    assert seen == set()
    chaos.found(f"{len(seen)} in {looks} polls")


def started(*command: str) -> "subprocess.Popen[str]":
    """Starts a strategist command, with output discarded except for ``mcp``."""
    pipe = subprocess.PIPE if command[0] == "mcp" else subprocess.DEVNULL
    return subprocess.Popen([sys.executable, "-m", "strategist.cli.main", *command], stdin=pipe, stdout=pipe, text=True)
