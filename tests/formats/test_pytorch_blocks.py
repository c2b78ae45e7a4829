"""Blocks of the exported script: each does what its part of the runtime does, and is in the script of a case that is run."""

from pathlib import Path

import pytest
from runtime.launch import forked

from formats.blocks_rank import CHECKS
from formats.pytorch_plans import CASES, plan_of
from strategist.formats.pytorch import WEIGHT_DECAY, conditions
from strategist.formats.pytorch_blocks import FILES, block_text, holds, kept
from strategist.paths import data_dir

FOLDER = data_dir("profiles") / "formats" / "pytorch"


@pytest.mark.torch
@pytest.mark.parametrize("name", CHECKS)
def test_a_block_computes_what_the_runtime_does(name: str, tmp_path: Path) -> None:
    done = forked(1, ["formats.blocks_rank", name], place=tmp_path)
    assert done.returncode == 0, done.stderr


def test_each_block_is_written_for_some_plan_and_each_file_is_a_block() -> None:
    written = {(file, block) for file, (_, blocks) in FILES.items() for block in blocks}
    assert written == {(path.parent.name, path.stem) for path in FOLDER.rglob("*.py")}


def test_each_condition_is_met_in_a_script_that_is_run_and_not_met_in_another() -> None:
    """But for CUDA's lines, which no test of gloo can run."""
    known = [conditions(plan_of(name)) for name in CASES]
    for file, (_, blocks) in FILES.items():
        for block, condition in blocks.items():
            lines = block_text(file, block).splitlines()
            asked = {condition, *(line.strip().removeprefix("# if: ") for line in lines if line.strip().startswith("# if: "))}
            for one in asked - {""}:
                parts = set(one.replace("not ", "").split(" and "))
                if "cuda" not in parts:
                    found = {holds(one, each) for each in known if not condition or holds(condition, each)}
                    assert True in found, (file, block, one)


def test_lines_are_kept_by_their_conditions() -> None:
    text = "a\n# if: x\nb\n    # if: not y and z\nc\n    # end: not y and z\n# end: x\nd"
    assert kept(text, {"x", "z"}) == "a\nb\nc\nd"
    assert kept(text, {"x", "y", "z"}) == "a\nb\nd"
    assert kept(text, {"z"}) == "a\nd"


def test_the_decay_of_weights_is_the_runtimes() -> None:
    text = (Path(__file__).parents[2] / "runtime" / "strategist_runtime" / "optimizers" / "optimizer.py").read_text(
        encoding="utf-8"
    )
    assert f"WEIGHT_DECAY = {WEIGHT_DECAY}\n" in text
