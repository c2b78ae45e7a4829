"""The example of docs/training.md: its command lines are those that the parser knows."""

import argparse
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from strategist.cli.main import COMMANDS, whole_parser

EXAMPLE = Path(__file__).parents[1] / "examples" / "training" / "run.py"


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("training_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_command_of_the_training_example_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, commands = example(), list[list[str]]()
    monkeypatch.setattr(module, "prepare", lambda folder: None)
    monkeypatch.setattr(module, "show", lambda *_: None)
    monkeypatch.setattr(module, "strategist", lambda *words: commands.append([str(word) for word in words]))
    module.main(tmp_path, 10)
    assert [words[0] for words in commands] == ["plan", "plan", "run", "run"] * 2
    for words in commands:
        parsed = whole_parser(COMMANDS).parse_args(words, argparse.Namespace())
        assert callable(parsed.command)
