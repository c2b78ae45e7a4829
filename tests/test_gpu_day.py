"""Rehearsal of benchmarks/gpu_day.py on a CPU: prepared cases run, failures are rows, and rows become measurements."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from strategist.profiles import history

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.torch, pytest.mark.timeout(280)]


def run_gpu_day(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "benchmarks/gpu_day.py", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.full
def test_a_day_is_prepared_run_and_absorbed(tmp_path: Path) -> None:
    folder, kept = tmp_path / "day", tmp_path / "kept" / "cpu.jsonl"
    names = ("copies", "base", "streamed 1", "beside eager", "fsdp 4")
    only = [word for name in names for word in ("--only", name)]
    assert run_gpu_day("prepare", folder, "--gpu", "cpu", "--no-wheels", *only).returncode == 0
    for session in ("first", "grid", "shadow"):
        done = run_gpu_day(session, folder, "--out", folder)
        assert done.returncode == 0, done.stderr
    found = {row["case"]: row for name in ("first", "grid", "shadow") for row in rows(folder / f"{name}.jsonl")}
    assert {name: row["error"] for name, row in found.items()} == dict.fromkeys(names, "")
    assert found["copies"]["measured"]["samples"]
    assert "threads" in found["streamed 1"]["not_simulated"]
    for name in ("base", "fsdp 4"):
        row = found[name]
        assert row["measured"]["peak_memory_bytes"] == pytest.approx(row["simulated"]["peak_memory_bytes"], rel=0.03)
        assert len(row["measured"]["step_seconds"]) >= 3
        assert row["predicted"]["step_seconds"] > 0
    first_losses = found["beside eager"]["measured"]["losses"][0]
    assert first_losses[0] == pytest.approx(first_losses[1], rel=1e-3)
    done = run_gpu_day("absorb", folder, "--into", kept)
    assert "allocated: median" in done.stdout, done.stderr
    assert [record.measurement.plan_id for record in history.read(kept).records] == [
        found[name]["plan_id"] for name in ("base", "streamed 1")
    ]
    run_gpu_day("absorb", folder, "--into", kept)  # adds no duplicates
    assert len(history.read(kept).records) == 2
    assert len(rows(kept.parent / "rows" / kept.name)) == len(names)


def test_a_failed_or_skipped_case_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cases are scripts without torch, so an empty module is imported instead of the runtime, which imports it."""
    (tmp_path / "runtime" / "strategist_runtime").mkdir(parents=True)
    for name in ("__init__", "trial"):
        (tmp_path / "runtime" / "strategist_runtime" / f"{name}.py").touch()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path / "runtime"), str(ROOT))))
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from gpu.day import run

    folder = tmp_path / "day"
    (folder / "cases").mkdir(parents=True)
    scripts = {"fails": "raise SystemExit('no such kernel')", "hangs": "import time; time.sleep(60)", "runs": "", "long": ""}
    for name, text in scripts.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    cases = {name: {"arguments": [str(tmp_path / f"{name}.py")], "expected_seconds": 0.1} for name in scripts}
    cases["hangs"]["limit_seconds"] = 0.5
    cases["long"]["expected_seconds"] = 999.0
    for number, (name, changes) in enumerate(cases.items()):
        case = {"version": 1, "type": "Case", **complete(name), **changes}
        (folder / "cases" / f"{number}.json").write_text(json.dumps(case), encoding="utf-8")
    run("first", folder, folder, 600.0)
    found = {row["case"]: row for row in rows(folder / "first.jsonl")}
    assert found["fails"]["error"] == "exit code 1"
    assert "no such kernel" in found["fails"]["log"]
    assert found["hangs"]["error"].startswith("ended after ")
    assert found["long"]["error"].startswith("not started: ")
    assert [row["case"] for row in rows(folder / "first.jsonl")] == list(scripts)
    run_gpu_day("first", folder, "--out", folder, "--seconds", 0)  # no time for any process; successful cases are kept
    assert [row["case"] for row in rows(folder / "first.jsonl")][len(scripts) :] == ["fails", "hangs", "long"]
    run_gpu_day("first", folder, "--out", folder, "--seconds", 0, "--only", "runs")
    assert [row["case"] for row in rows(folder / "first.jsonl")].count("runs") == 2
    done = run_gpu_day("first", folder, "--out", folder, "--only", "run")
    assert (done.returncode, done.stdout) == (1, "")
    assert "did you mean runs" in done.stderr


def test_a_session_imports_no_torch() -> None:
    """On a loaded machine torch's import and its unloading at the end take half a minute of a session's time."""
    program = "import sys; sys.path.insert(0, 'benchmarks'); import gpu.day; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def complete(name: str) -> dict[str, Any]:
    """A complete case of a command, as ``prepare`` writes."""
    return {
        "name": name, "session": "first", "arguments": [], "plan": None, "rank": None, "simulated": None, "not_simulated": "",
        "expected_seconds": 1.0, "limit_seconds": 300.0,
    }  # fmt: skip


@pytest.mark.full
def test_wrong_input_prints_one_error_line(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("", encoding="utf-8")
    for words, law in (
        (("prepare", tmp_path, "--gpu", "cpu"), "holds files already"),
        (("prepare", tmp_path / "new", "--gpu", "cpu", "--only", "bose"), "did you mean base"),
        (("absorb", tmp_path), "has no rows"),
        (("grid", tmp_path, "--out", tmp_path), "holds no cases; gpu_day.py prepare makes them"),
    ):
        done = run_gpu_day(*words)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
        assert law in done.stderr
