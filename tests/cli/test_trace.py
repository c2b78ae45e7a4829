"""``strategist trace``: the simulated step of a plan as a trace file for trace viewers."""

import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from strategist.cli.main import main
from strategist.contract import codec
from strategist.contract.plan import Plan

FIXED = ["--fix", "pp=4", "--fix", "tp=1", "--fix", "dp_shard=2", "--fix", "offload=none"]
SCHEDULES = {"1f1b": 1, "interleaved_1f1b": 2, "dual_pipe_v": 2}


def plan_file(folder: Path, *fixed: str) -> Path:
    file = folder / "plan.json"
    request = ["plan", "--model", "llama3.1-8b", "--gpus", "8xH100", "--global-batch", "32", "--top", "1"]
    assert main([*request, *fixed, "-o", str(file), "--json"]) == 0
    return file


def slices(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in document["traceEvents"] if event["ph"] == "X"]


def check_structure(document: dict[str, Any]) -> None:
    """Checks that every event is complete, every thread has a name, and slices of a thread overlap by rounding only."""
    named = {(event["pid"], event["tid"]) for event in document["traceEvents"] if event["ph"] == "M"}
    threads = defaultdict(list)
    for event in slices(document):
        assert {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"} == set(event)
        assert event["ts"] >= 0
        assert event["dur"] >= 0
        threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert {(process, min(thread, 3)) for process, thread in threads} <= named
    for spans in threads.values():
        spans.sort()
        assert all(begin >= end - 2e-3 for (_, end), (begin, _) in pairwise(spans))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_pipeline_trace_has_one_process_per_rank(schedule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fixed = ["--fix", f"pp_schedule={schedule}", "--fix", f"pp_virtual_stages={SCHEDULES[schedule]}"]
    file = plan_file(tmp_path, *FIXED, *fixed)
    capsys.readouterr()
    assert main(["trace", str(file), "-o", str(tmp_path / "t.json")]) == 0
    printed = capsys.readouterr()
    document, plan = json.loads((tmp_path / "t.json").read_text()), codec.load(Plan, file)
    check_structure(document)
    assert "ui.perfetto.dev" in printed.out
    assert printed.err == ""
    found = slices(document)
    assert {event["pid"] for event in found} == {0, 1, 2, 3}
    each = plan.accumulation * SCHEDULES[schedule]
    for rank in range(4):
        own = [event for event in found if event["pid"] == rank]
        assert sum(event["cat"] == "forward" for event in own) == each
        assert sum(event["cat"] in ("backward", "backward for inputs") for event in own) == each
        assert sum(event["cat"] == "transfer" for event in own) > 0
    stages = {event["args"]["stage"]: event["args"]["layers"] for event in found if event["cat"] == "forward"}
    assert sum(stages.values()) == plan.model.layers
    assert document["otherData"]["step_seconds"] == pytest.approx(plan.estimate.step_seconds)
    last = max(event["ts"] + event["dur"] for event in found) / 1e6
    assert last == pytest.approx(plan.estimate.step_seconds, rel=1e-6)


def test_traced_memory_peaks_at_the_last_forward_and_returns_to_zero(tmp_path: Path) -> None:
    file = plan_file(tmp_path, *FIXED, "--fix", "pp_schedule=gpipe", "--confidence", "0.5")
    assert main(["trace", str(file)]) == 0
    document = json.loads((tmp_path / "plan-trace.json").read_text())
    counted = [event["args"]["bytes"] for event in document["traceEvents"] if event["ph"] == "C" and event["pid"] == 1]
    micro_batches = codec.load(Plan, file).accumulation
    assert counted.index(max(counted)) == micro_batches - 1
    assert counted[-1] == 0


def test_micro_batches_run_sequentially_without_a_pipeline(tmp_path: Path) -> None:
    file = plan_file(tmp_path, "--fix", "dp_shard=8", "--fix", "micro_batch=1", "--fix", "offload=none")
    assert main(["trace", str(file)]) == 0
    document, plan = json.loads((tmp_path / "plan-trace.json").read_text()), codec.load(Plan, file)
    check_structure(document)
    work = [event["cat"] for event in slices(document) if event["tid"] == 1 and "micro_batch" in event["args"]]
    assert work == ["forward", "backward"] * plan.accumulation
    assert document["otherData"]["step_seconds"] == pytest.approx(plan.estimate.step_seconds, rel=1e-6)
    assert {event["name"] for event in slices(document)} >= {"optimizer", "dp collectives"}


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(["trace", *arguments]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.count("\n") == 1
    return found.err


def test_wrong_input_prints_one_error_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = plan_file(tmp_path, *FIXED)
    assert "cannot be read" in refused(capsys, str(tmp_path / "none.json"))
    (tmp_path / "text.json").write_text("no JSON")
    assert "not a JSON document" in refused(capsys, str(tmp_path / "text.json"))
    assert "cannot be written" in refused(capsys, str(file), "-o", str(tmp_path / "no" / "folder.json"))
    plan = codec.load(Plan, file)
    layout = replace(plan.candidate.layout, tp=3)
    codec.save(replace(plan, candidate=replace(plan.candidate, layout=layout)), file)
    assert "devices" in refused(capsys, str(file))
    assert not (tmp_path / "plan-trace.json").exists()


def test_a_step_of_more_than_32768_passes_is_not_traced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither as a trace nor in a report, which states the reason."""
    file = plan_file(tmp_path, "--fix", "pp=2", "--fix", "offload=none", "--global-batch", "1000000")
    assert main(["trace", str(file), "-o", str(tmp_path / "trace.json")]) == 2
    assert "a step of more than 32,768 forward passes is not simulated; plan with fewer" in capsys.readouterr().err
    assert main(["report", str(file), "-o", str(tmp_path / "report.html")]) == 0
    assert "A step of more than 32,768 forward passes is not simulated." in (tmp_path / "report.html").read_text()
