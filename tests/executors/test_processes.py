"""Processes are found by their tag wherever they went, and ended whatever they do about it."""

import os
import signal
import subprocess
import sys

from strategist.executors import processes

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
POLITE = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); print(flush=True); time.sleep(600)"


def test_a_new_tag_is_never_given_twice_and_names_a_living_owner():
    tags = {processes.new_tag("s") for _ in range(100)}
    assert len(tags) == 100
    assert all(tag.startswith(f"s.{os.getpid()}.{processes.started(os.getpid())}.") for tag in tags)


def test_only_the_processes_of_the_tag_are_ended(start):
    tag = processes.new_tag("mine")
    mine, other = [start(tag, POLITE), start(tag, POLITE)], start(tag + "0", POLITE)
    assert set(processes.tagged(tag)) == {process.pid for process in [*mine, other]}
    processes.end(tag, grace_seconds=60.0)
    assert [process.wait() for process in mine] == [7, 7]
    assert other.poll() is None


def test_a_process_that_hears_nothing_is_killed(start):
    tag = processes.new_tag("deaf")
    process = start(tag, DEAF)
    processes.end(tag, grace_seconds=0.1)
    assert process.wait() == -signal.SIGKILL


def test_a_stopped_process_is_ended(start):
    tag = processes.new_tag("stopped")
    process = start(tag, POLITE)
    os.kill(process.pid, signal.SIGSTOP)
    processes.end(tag, grace_seconds=0.1)
    assert process.wait() == -signal.SIGKILL


def test_the_sweep_ends_what_a_dead_tuner_left_and_spares_a_living_one(start):
    study = f"sweep-{os.getpid()}"
    owner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    stale = start(f"{study}.{owner.pid}.{processes.started(owner.pid)}.1", DEAF)
    living = start(processes.new_tag(study), DEAF)
    elsewhere = start(f"{study}-other.1.1.1", DEAF)
    assert processes.sweep(study) == 0
    owner.kill()
    owner.wait()
    assert processes.sweep(study) == 1
    assert stale.wait() == -signal.SIGKILL
    assert (living.poll(), elsewhere.poll()) == (None, None)
    assert processes.sweep(study) == 0


def test_the_start_of_a_process_tells_it_from_another_with_its_number():
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    first = processes.started(process.pid)
    assert first.isdigit()
    process.wait()
    assert processes.started(process.pid) != first
