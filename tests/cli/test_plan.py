"""``strategist plan``: the summary, sections by name, and the selected plan."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strategist import api
from strategist.cli.main import main
from strategist.contract import codec
from strategist.contract.answer import SECTION_NAMES, Answer
from strategist.contract.plan import Plan
from strategist.formats.catalog import formats
from strategist.programs.backends import backends
from strategist.report.answer import SECTIONS

TINY = ["plan", "--model", "tiny", "--gpus", "4xcpu", "--seq-len", "128", "--global-batch", "16"]
TOO_LARGE = ["plan", "--model", "70b", "--gpus", "1x24GB", "--fix", "offload=none"]

Captured = pytest.CaptureFixture[str]


def test_any_plan_of_an_answer_can_be_saved_and_described(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "second.json"
    assert main([*TINY, "--plan", "2", "-o", str(file), "--json"]) == 0
    second = codec.loads(Answer, capsys.readouterr().out).plans[1]
    assert codec.load(Plan, file) == second
    main([*TINY, "--plan", "2", "--show", "settings"])
    assert f"id {second.id}" in capsys.readouterr().out
    assert main([*TINY, "--plan", "9"]) == 2
    assert "--plan 9: the answer has 5 plans; take 1 to 5, or ask for more with --top" in capsys.readouterr().err


def test_plans_are_printed_before_alternatives_are_known(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    main(TINY)
    whole = capsys.readouterr().out
    stages, printed = api.plan_stages, []

    def observed_stages(*args: Any, **kwargs: Any) -> Iterator[Answer]:
        for answer in stages(*args, **kwargs):
            yield answer
            printed.append(capsys.readouterr().out)

    monkeypatch.setattr(api, "plan_stages", observed_stages)
    main(TINY)
    assert "Best plan" in printed[0]
    assert printed[0] + capsys.readouterr().out == whole


def test_sections_of_the_answer_are_shown_by_name(capsys: Captured) -> None:
    assert tuple(SECTIONS) == SECTION_NAMES
    main([*TINY, "--show", "memory,time"])
    text = capsys.readouterr().out
    assert "Memory of the fullest device" in text
    assert "Time of a step" in text
    assert "Cards that decided it" not in text
    assert main([*TINY, "--show", "memroy"]) == 2
    assert "--show memroy: is not known; did you mean memory?" in capsys.readouterr().err


@pytest.mark.parametrize("more", [[], ["--json"], ["--explain"]])
def test_plan_exits_with_1_if_nothing_fits(more: list[str], capsys: Captured) -> None:
    assert main([*TOO_LARGE, *more]) == 1
    assert "Nothing fits" in capsys.readouterr().out


def test_settings_can_be_separated_by_commas(capsys: Captured) -> None:
    main([*TINY, "--fix", "tp=2,recompute=full", "--json"])
    candidate = codec.loads(Answer, capsys.readouterr().out).plans[0].candidate
    assert (candidate.layout.tp, candidate.knobs.recompute) == (2, "full")


def test_plan_writes_the_same_job_as_export(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --backend the plan is one that the format can express; the configured image is used by both commands."""
    monkeypatch.setenv("STRATEGIST_IMAGE", "a/b:1")
    asked = ["plan", "--model", "llama3-8b", "--gpus", "2x8xH100", "--to", "axolotl", "--job", "pytorchjob"]
    assert main([*asked, "--job-output", str(tmp_path / "job"), "-o", str(tmp_path / "plan.json")]) == 0
    found = capsys.readouterr()
    assert re.search(r"runs on [\w,\s]*axolotl", found.out)
    assert f"start it: cd {tmp_path / 'job'} && kubectl apply -f pytorchjob.yaml" in found.err
    export = ["export", str(tmp_path / "plan.json"), *asked[5:], "-o", str(tmp_path / "exported")]
    assert main(export) == 0
    assert capsys.readouterr().err == found.err.replace(str(tmp_path / "job"), str(tmp_path / "exported"))
    assert texts(tmp_path / "job") == texts(tmp_path / "exported")


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_the_backend_is_the_default_format_of_a_job(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """A typed format overrides the configured backend."""
    monkeypatch.setenv("STRATEGIST_BACKEND", "deepspeed")
    asked = ["plan", "--model", "llama3-8b", "--gpus", "8xH100"]
    assert main([*asked, "--job", "hosts", "--job-output", str(tmp_path / "first"), "--hosts", "a"]) == 0
    assert (tmp_path / "first" / "ds_config.json").exists()
    capsys.readouterr()
    assert main([*asked, "--to", "axolotl", "--job-output", str(tmp_path / "second")]) == 0
    assert (tmp_path / "second" / "train.yaml").exists()
    assert re.search(r"runs on [\w,\s]*axolotl", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "pytorch"], "--to pytorch: no folder is named for the files; add --job-output DIR"),
        (["--job", "slurm"], "--job slurm: no folder is named for the files; add --job-output DIR"),
        (["--job-output", "job"], "--job-output job: no format is named; add --to with one of pytorch, deepspeed"),
        (["--to", "megatron", "--job-output", "job"], "format megatron: is not known; did you mean megatron-lm"),
        (["--to", "pytorch", "--job", "slrm", "--job-output", "job"], "starts it without --job; did you mean slurm?"),
        (["--to", "pytorc"], "format pytorc: is not known; did you mean pytorch"),
        (
            ["--to", "nanotron", "--backend", "native", "--fix", "offload=all", "--job-output", "job"],
            "change the request, or export to another format",
        ),
    ],
)  # fmt: skip
def test_a_job_that_cannot_be_written_prints_one_error_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*TINY, *arguments]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert message in line
    assert not Path("job").exists()


def test_each_backend_is_listed_with_its_best_plan_or_a_reason(capsys: Captured) -> None:
    """Each back end's best plan equals that of a request for this back end; others state why they have no plan."""
    asked = ["plan", "--model", "llama3-8b", "--gpus", "8xH100", "--train", "lora"]
    main([*asked, "--show", "backends", "--json"])
    found = {one.backend: one for one in codec.loads(Answer, capsys.readouterr().out).backends}
    assert set(found) == {*backends(), *formats()}
    for name in ("axolotl", "pytorch"):
        main([*asked, "--backend", name, "--top", "1", "--json"])
        assert codec.loads(Answer, capsys.readouterr().out).plans[0] == found[name].plan
    assert found["nanotron"].why == "nanotron cannot run workload.train = lora; it takes full"
    main([*asked, "--show", "backends"])
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.strip().startswith("axolotl ") for line in lines) == 1
    assert any("nanotron cannot run workload.train" in line for line in lines)


@pytest.mark.parametrize(
    ("gpus", "more", "code"), [("8xA100", [], 0), ("8x48GB", [], 3), ("8x48GB", ["--confidence", "0.5"], 0), ("8x40GB", [], 1)]
)
def test_check_exits_by_the_verdict(gpus: str, more: list[str], code: int, capsys: Captured) -> None:
    fix = "dp_shard=8,micro_batch=1,recompute=none,offload=none,reshard_after_forward=true,activation_offload=false,compile=true"
    assert main(["plan", "--check", "--model", "8b", "--gpus", gpus, "--fix", fix, *more]) == code
    verdict = capsys.readouterr().out.splitlines()[2]
    assert verdict.startswith({0: "Fits: ", 1: "Nothing fits. ", 3: "Tight: "}[code])
