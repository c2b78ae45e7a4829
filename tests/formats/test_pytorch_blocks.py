"""Blocks of the exported script: each equals its part of the runtime, and some script that is run contains it."""

import json
from pathlib import Path

import pytest
from runtime.launch import forked

from formats.blocks_rank import CHECKS
from formats.pytorch_plans import CASES, plan_of
from strategist.formats.pytorch import WEIGHT_DECAY, conditions
from strategist.formats.pytorch_blocks import FILES, block_text, holds, selected_lines
from strategist.paths import data_dir

FOLDER = data_dir("profiles") / "formats" / "pytorch"


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The traceback of each check that failed; one process runs all."""
    done = forked(1, ["formats.blocks_rank"], place=tmp_path_factory.mktemp("blocks"))
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.torch
@pytest.mark.parametrize("name", CHECKS)
def test_blocks_compute_the_same_as_the_runtime(name: str, failures: dict[str, str]) -> None:
    assert name not in failures, failures[name]


def test_registered_blocks_equal_the_block_files() -> None:
    written = {(file, block) for file, (_, blocks) in FILES.items() for block in blocks}
    assert written == {(path.parent.name, path.stem) for path in FOLDER.rglob("*.py")}


def test_each_condition_holds_in_some_script_that_is_run() -> None:
    """Except for CUDA's lines, which tests with gloo cannot run."""
    known = [conditions(plan_of(name)) for name in CASES]
    for file, (_, blocks) in FILES.items():
        for block, condition in blocks.items():
            lines = block_text(file, block).splitlines()
            tried = {condition, *(line.strip().removeprefix("# if: ") for line in lines if line.strip().startswith("# if: "))}
            for one in tried - {""}:
                parts = set(one.replace("not ", "").split(" and "))
                if "cuda" not in parts:
                    found = {holds(one, each) for each in known if not condition or holds(condition, each)}
                    assert True in found, (file, block, one)


def test_conditional_lines_are_kept_or_removed() -> None:
    text = "a\n# if: x\nb\n    # if: not y and z\nc\n    # end: not y and z\n# end: x\nd"
    assert selected_lines(text, {"x", "z"}) == "a\nb\nc\nd"
    assert selected_lines(text, {"x", "y", "z"}) == "a\nb\nd"
    assert selected_lines(text, {"z"}) == "a\nd"


def test_weight_decay_equals_the_runtimes() -> None:
    text = (Path(__file__).parents[2] / "runtime" / "strategist_runtime" / "optimizers" / "optimizer.py").read_text(
        encoding="utf-8"
    )
    assert f"WEIGHT_DECAY = {WEIGHT_DECAY}\n" in text
