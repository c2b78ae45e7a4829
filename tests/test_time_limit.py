"""A test is ended if its processes are idle or never end, but not because other programs take the processors."""

import os
import subprocess
import sys

from time_limit import TimeLimit, processor_seconds


def test_slow_work_goes_on_and_idle_processes_reach_the_limit() -> None:
    limit = TimeLimit(seconds=200.0)
    assert not limit.reached(50.0)  # those before it
    assert not limit.reached(70.0)  # a fifth of a processor
    assert not limit.reached(90.0)
    assert limit.reached(93.0)  # ranks that only poll


def test_endless_work_reaches_the_limit() -> None:
    limit = TimeLimit(seconds=100.0)
    assert not limit.reached(0.0)
    all_of_them = 100.0 * (os.cpu_count() or 1)
    assert not limit.reached(all_of_them)
    assert limit.reached(all_of_them + 20.0)


def test_processor_time_of_running_and_of_ended_descendants_counts() -> None:
    nested = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    before = processor_seconds()
    process = subprocess.Popen([sys.executable, "-c", nested], start_new_session=True)
    try:
        while processor_seconds() < before + 0.2:  # a test without it would hang here
            pass
    finally:
        os.killpg(process.pid, 9)
        process.wait()
    subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
    assert processor_seconds() > before
