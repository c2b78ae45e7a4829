"""Processes are found by their tag and terminated, also if they ignore signals or changed their session."""

import os
import signal
import subprocess
import sys

from strategist.executors import processes

IGNORES_SIGTERM = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
EXITS_ON_SIGTERM = (
    "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); print(flush=True); time.sleep(600)"
)


def test_tags_are_unique_and_name_their_owner():
    tags = {processes.new_tag("s") for _ in range(100)}
    assert len(tags) == 100
    assert all(tag.startswith(f"s.{os.getpid()}.{processes.started(os.getpid())}.") for tag in tags)


def test_only_processes_with_the_tag_are_terminated(start):
    tag = processes.new_tag("mine")
    mine, other = [start(tag, EXITS_ON_SIGTERM), start(tag, EXITS_ON_SIGTERM)], start(tag + "0", EXITS_ON_SIGTERM)
    assert set(processes.tagged(tag)) == {process.pid for process in [*mine, other]}
    processes.end(tag, grace_seconds=60.0)
    assert [process.wait() for process in mine] == [7, 7]
    assert other.poll() is None


def test_a_process_that_ignores_sigterm_is_killed(start):
    tag = processes.new_tag("ignoring")
    process = start(tag, IGNORES_SIGTERM)
    processes.end(tag, grace_seconds=0.1)
    assert process.wait() == -signal.SIGKILL


def test_a_stopped_process_is_killed(start):
    tag = processes.new_tag("stopped")
    process = start(tag, EXITS_ON_SIGTERM)
    os.kill(process.pid, signal.SIGSTOP)
    processes.end(tag, grace_seconds=0.1)
    assert process.wait() == -signal.SIGKILL


def test_the_sweep_terminates_processes_of_dead_tuners_only(start):
    study = f"sweep-{os.getpid()}"
    owner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    stale = start(f"{study}.{owner.pid}.{processes.started(owner.pid)}.1", IGNORES_SIGTERM)
    living = start(processes.new_tag(study), IGNORES_SIGTERM)
    elsewhere = start(f"{study}-other.1.1.1", IGNORES_SIGTERM)
    assert processes.sweep(study) == 0
    owner.kill()
    owner.wait()
    assert processes.sweep(study) == 1
    assert stale.wait() == -signal.SIGKILL
    assert (living.poll(), elsewhere.poll()) == (None, None)
    assert processes.sweep(study) == 0


def test_the_start_time_distinguishes_processes_with_the_same_pid():
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    first = processes.started(process.pid)
    assert first.isdigit()
    process.wait()
    assert processes.started(process.pid) != first
