"""The process supervisor bounds the log of its command, records its exit, and ends it when the supervisor dies."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from strategist.executors.deadlines import read_exit
from strategist.executors.process_supervisor import LOG_BYTES
from strategist.executors.trial_records import log_tail


def start(folder: Path, code: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "strategist.executors.process_supervisor", "rank", str(folder), sys.executable, "-c", code]
    return subprocess.Popen(command, env={**os.environ, "RANK": "3"}, start_new_session=True)


@pytest.mark.parametrize(
    ("code", "noted", "exit_code"),
    [
        ("pass", 0, 0),
        ("import sys; sys.exit(77)", 77, 77),
        ("import os; os.kill(os.getpid(), 9)", -9, 137),
        ("import os; os.kill(os.getpid(), 11)", -11, 139),
        ("import os, signal; os.kill(os.getpid(), 15)", -15, 143),
    ],
)
def test_the_exit_code_of_the_command_is_recorded_and_returned(tmp_path: Path, code: str, noted: int, exit_code: int):
    before = time.monotonic()
    assert start(tmp_path, code).wait() == exit_code
    ended = read_exit(tmp_path, 3)
    assert ended is not None
    assert ended[0] == noted
    assert before <= ended[1] <= time.monotonic()


def test_the_end_of_a_long_log_is_kept(tmp_path: Path):
    start(tmp_path, "for i in range(120_000): print('line', i)").wait()
    kept = b"".join((tmp_path / name).read_bytes() for name in ("rank-3.log.old", "rank-3.log"))
    assert len(kept) <= 2 * LOG_BYTES
    assert log_tail(tmp_path, "rank-3").splitlines() == [f"line {i}" for i in range(120_000 - 40, 120_000)]


def test_a_log_without_lines_and_with_control_characters_is_shown_plainly(tmp_path: Path):
    start(tmp_path, "print('\\x1b[2J\\x1b]0;title\\x07\\x00' + 'x' * 2_000_000 + '\\x1b[31mred\\x1b[0m\\tend', end='')").wait()
    tail = log_tail(tmp_path, "rank-3")
    assert tail.endswith("xred\tend")
    assert len(tail) == 8000
    assert tail.isprintable() or set(tail) == {"x", "r", "e", "d", "\t", "n"}


def test_a_grandchild_with_open_output_is_not_awaited(tmp_path: Path):
    sleeper = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']).pid)"
    assert start(tmp_path, sleeper).wait() == 0
    os.kill(int(log_tail(tmp_path, "rank-3")), signal.SIGKILL)


def test_on_sigterm_the_supervisor_waits_for_its_command(tmp_path: Path):
    code = "import signal, sys; signal.signal(15, lambda *_: sys.exit(5)); print('ready', flush=True); signal.pause()"
    supervisor = start(tmp_path, code)
    while log_tail(tmp_path, "rank-3") != "ready":
        time.sleep(0.01)
    os.killpg(supervisor.pid, signal.SIGTERM)
    assert supervisor.wait() == 5


def test_sigterm_ends_supervisor_and_command_at_any_moment(tmp_path: Path):
    """Also while the supervisor is about to start its command."""
    for number in range(12):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        supervisor = start(folder, "import time; time.sleep(600)")
        time.sleep(0.005 * number)
        os.killpg(supervisor.pid, signal.SIGTERM)
        assert supervisor.wait() in (-signal.SIGTERM, 128 + signal.SIGTERM)


def test_a_command_does_not_outlive_its_supervisor(tmp_path: Path):
    supervisor = start(tmp_path, "import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    while not (pid := log_tail(tmp_path, "rank-3")):
        time.sleep(0.01)
    supervisor.kill()
    supervisor.wait()
    with suppress(OSError):  # the process may be reaped between two polls
        while Path(f"/proc/{pid}/cmdline").read_bytes():
            time.sleep(0.01)


def test_a_missing_command_is_reported_in_the_log(tmp_path: Path):
    command = [sys.executable, "-m", "strategist.executors.process_supervisor", "rank", str(tmp_path), "/nowhere/python"]
    assert subprocess.run(command, env={**os.environ, "RANK": "3"}, check=False).returncode == 127
    assert log_tail(tmp_path, "rank-3") == "/nowhere/python: cannot be started: No such file or directory"
