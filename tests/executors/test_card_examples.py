"""Outcomes of example scripts; no process or file is left."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from executors.conftest import wait_until

from strategist.contract import codec
from strategist.contract.card_example import Script, ScriptOutcome, ScriptResult, Scripts
from strategist.executors import processes
from strategist.executors.card_examples import run_scripts

pytestmark = pytest.mark.torch

RANKS = """\
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
"""
LONG = 10**6 + os.getpid()
"""Seconds that only these tests sleep."""

SCRIPTS = {
    "passes": Script(run="import torch\nassert torch.ones(2).sum() == 2"),
    "ranks": Script(run=RANKS + "seen = [None] * 2\ndist.all_gather_object(seen, rank)\nassert seen == [0, 1]", ranks=2),
    "fails": Script(run=RANKS + "assert rank == 0, 'the second\\nrank'\ndist.barrier()", ranks=2),
    "deep": Script(run="def f():\n    raise KeyError('x')\n\nf()\n"),
    "syntax": Script(run="x = (\n"),
    "exit": Script(run="import sys\nsys.exit(3)"),
    "left": Script(run="import sys\nsys.exit(0)"),
    "signal": Script(run="import os\n\nos.kill(os.getpid(), 11)"),
    "refused": Script(run="raise RuntimeError('there is no device here')", refused="no device"),
    "ran through": Script(run="print('fine')", refused="no device"),
    "otherwise": Script(run="raise RuntimeError('other')", refused="no device"),
    "child": Script(
        run=f"from subprocess import Popen\nPopen(['sleep', '{LONG}'])\nPopen(['sleep', '{LONG}'], start_new_session=True)"
    ),
    "litter": Script(run="import pathlib\npathlib.Path('left').touch()\nprint('noise')"),
    "clean": Script(run="import pathlib\nassert not list(pathlib.Path().iterdir())"),
    "main": Script(
        run="import __main__\nassert __name__ == '__main__' and __main__.__file__ == __file__ and 'Script' not in dir()"
    ),
    "secret": Script(run="import os\nassert 'SECRET_TOKEN' not in os.environ"),
    "alone": Script(run="import torch\nassert not torch.cuda.is_available() and torch.get_num_threads() == 1"),
}
WAITS = Script(run=RANKS + "if rank == 1:\n    dist.barrier()", ranks=2)
HANGS = Script(run="import time\n\ntime.sleep(600)")
LIMIT = 10


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ScriptResult]:
    reported: list[int] = []
    os.environ["SECRET_TOKEN"] = "hidden"
    here = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("here"))
    try:
        found = run_scripts(list(SCRIPTS.values()), on_result=lambda number, _: reported.append(number))
    finally:
        left = list(Path.cwd().iterdir())
        os.chdir(here)
        del os.environ["SECRET_TOKEN"]
    assert reported == list(range(len(SCRIPTS)))
    assert left == []
    return dict(zip(SCRIPTS, found, strict=True))


@pytest.mark.parametrize("name", ["passes", "ranks", "left", "child", "litter", "clean", "main", "secret", "alone"])
def test_a_successful_script_passes(results: dict[str, ScriptResult], name: str) -> None:
    assert (results[name].outcome, results[name].message) == (ScriptOutcome.PASSED, "")


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("fails", 4, "AssertionError: the second rank"),
        ("deep", 2, "KeyError: 'x'"),
        ("syntax", 1, "SyntaxError: '(' was never closed"),
        ("exit", 2, "SystemExit: 3"),
        ("signal", 3, "ended by SIGSEGV"),
    ],
)
def test_a_failure_names_its_line(results: dict[str, ScriptResult], name: str, line: int, message: str) -> None:
    result = results[name]
    assert (result.outcome, result.line) == (ScriptOutcome.FAILED, line)
    assert result.message.startswith(message)


def test_a_hung_script_is_terminated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The script needs no torch, so an empty module is imported instead."""
    (tmp_path / "torch.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (result,) = run_scripts([HANGS], timeout_seconds=2)
    assert summary(result) == (ScriptOutcome.TIMED_OUT, 3, "rank 0 had not ended after 2 s")


@pytest.mark.full
def test_a_timeout_names_the_waiting_rank() -> None:
    (result,) = run_scripts([WAITS], timeout_seconds=LIMIT)
    assert summary(result) == (ScriptOutcome.TIMED_OUT, 5, f"rank 1 had not ended after {LIMIT} s")


def summary(result: ScriptResult) -> tuple[object, ...]:
    return result.outcome, result.line, result.message


def test_a_refusal_must_match_the_documented_text(results: dict[str, ScriptResult]) -> None:
    assert results["refused"].outcome is ScriptOutcome.REFUSED
    assert results["refused"].sound
    assert results["ran through"].message == "it ran through, and should have been refused: no device"
    assert results["otherwise"].message == "RuntimeError: other (and not the refusal: no device)"
    assert not results["ran through"].sound
    assert not results["otherwise"].sound


def test_no_process_is_left(results: dict[str, ScriptResult]) -> None:
    assert results["child"].sound
    assert running(f"sleep\x00{LONG}") == []
    assert processes.tagged(f"examples.{os.getpid()}.") == {}


def test_no_script_starts_no_process() -> None:
    assert run_scripts([]) == ()


@pytest.mark.full
def test_the_script_runner_dies_with_its_parent(tmp_path: Path) -> None:
    """The parent is killed by SIGKILL."""
    script = f"import pathlib, time\npathlib.Path({str(tmp_path / 'begun')!r}).touch()\ntime.sleep(617)"
    code = (
        "from strategist.contract.card_example import Script; from strategist.executors.card_examples import run_scripts\n"
        f"run_scripts([Script(run={script!r}, ranks=2)])"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    asking = subprocess.Popen([sys.executable, "-c", code], env=environment, start_new_session=True)
    try:
        wait_until(lambda: (tmp_path / "begun").exists())
        tags = set(processes.tagged(f"examples.{asking.pid}.").values())
        assert len(tags) == 1
    finally:
        os.kill(asking.pid, signal.SIGKILL)
        asking.wait()
    wait_until(lambda: not processes.tagged(f"examples.{asking.pid}."))


def test_a_failed_script_runner_fails_the_remaining_scripts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Torch cannot be imported, because another module of that name comes first."""
    (tmp_path / "torch.py").write_text("raise ImportError('broken torch')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (result,) = run_scripts([Script(run="print(1)")])
    assert result.outcome is ScriptOutcome.FAILED
    assert "broken torch" in result.message


def test_a_missing_torch_prints_what_to_install() -> None:
    code = "from strategist.executors.requirements import require_torch; require_torch()"
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root}:{root / 'runtime'}"}
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert "InputError" in done.stderr
    assert done.stderr.strip().endswith("torch: is not installed; pip install 'torch-strategist[runtime]'")


def test_scripts_survive_serialization(tmp_path: Path) -> None:
    batch = Scripts(scripts=tuple(SCRIPTS.values()), timeout_seconds=3.0)
    codec.save(batch, tmp_path / "scripts.json")
    assert codec.load(Scripts, tmp_path / "scripts.json") == batch


def running(command: str) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path("/proc", name, "cmdline").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if line.startswith(command):
            found.append(int(name))
    return found
