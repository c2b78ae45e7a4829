"""Shipped programs: each builds a command for plans of a real model and reads its own log lines."""

import re
from pathlib import Path

import pytest

from strategist.cards.deck import load_deck
from strategist.contract.measurement import TrialSettings
from strategist.contract.request import Request
from strategist.errors import FileError, InputError
from strategist.executors.command import CommandExecutor
from strategist.paths import data_dir
from strategist.planning.planner import ranked
from strategist.profiles.situation import situation
from strategist.programs.backends import find_program, load_backend, programs
from strategist.programs.log_pattern import pattern

LINES = {
    "torchtitan": "step:  2  loss:  8.12345  grad_norm:  1.5000  memory: 12.34GiB(15.6%)  tps: 7,123  tflops: 412.34  mfu: 41.69%",
    "megatron-lm": " [2026-08-19 10:00:00.1] iteration        2/      13 | consumed samples:  128 |"
    " elapsed time per iteration (ms): 5123.4 |"
    " learning rate: 1.000000E-04 | global batch size:    64 | lm loss: 1.081234E+01 | loss scale: 1.0 | grad norm: 5.960 |",
    "llama-factory": "{'loss': '1.234', 'grad_norm': '0.5', 'learning_rate': '4.9e-05', 'epoch': '0.01'}",
}  # fmt: skip


@pytest.mark.parametrize("name", programs())
def test_each_program_builds_commands_for_its_plans(name: str, tmp_path: Path) -> None:
    program = find_program(name)
    assert program is not None
    assert program.source.startswith("https://")
    problem = situation(Request(model="llama3-8b", gpus="8xH100", backend=name))
    plans = ranked(problem, deck=load_deck(data_dir("cards")), limit=20)
    assert len(plans) >= 2
    for plan in plans:
        assert name in plan.backends
        words = CommandExecutor(program=program).command(plan, tmp_path, TrialSettings())
        assert not any(re.search(r"[{}]", word) for word in words)
    assert any("13" in word for word in words), "steps of a trial and its warm-up"


def test_each_program_reads_its_own_log_line() -> None:
    assert set(LINES) == set(programs())
    for name, line in LINES.items():
        program = find_program(name)
        assert program is not None
        found = [figures for text in program.metrics.lines if (figures := pattern(text).read(line))]
        assert len(found) == 1, name
        assert found[0]["loss"] > 1


def test_megatrons_memory_line_is_read() -> None:
    program = find_program("megatron-lm")
    assert program is not None
    line = "[Rank 0] (after 2 iterations) memory (MB) | allocated: 1.00 | max allocated: 2048.50 | reserved: 3.00"
    line += " | max reserved: 4096.00"
    assert pattern(program.metrics.lines[1]).read(line) == {"peak_memory_bytes": 2048.5 * 2**20, "peak_reserved_bytes": 2**32}


def test_back_ends_load_by_name_or_file(tmp_path: Path) -> None:
    assert load_backend("torchtitan").name == "torchtitan"
    with pytest.raises(InputError, match=r"torchtitn.*did you mean torchtitan"):
        load_backend("torchtitn")
    with pytest.raises(FileError, match=r"cannot be read"):
        load_backend(str(tmp_path / "mine.yaml"))


def test_a_rewritten_program_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    text = "program: one\ncommand: [a, '{workload.seq_len}', '{workload.global_batch}']\nmetrics: {lines: 'loss {loss}'}\n"
    path.write_text(text, encoding="utf-8")
    assert load_backend(str(path)).name == "one"
    path.unlink()
    path.write_text(text.replace("one", "another"), encoding="utf-8")
    assert load_backend(str(path)).name == "another"
