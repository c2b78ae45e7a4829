"""The help of every command has valid examples."""

import re
import shlex

import pytest

from strategist.cli.help_examples import EXAMPLES
from strategist.cli.main import COMMANDS, main, whole_parser

LINES = [(name, line) for name, lines in EXAMPLES.items() for line in lines]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_shows_the_examples_unwrapped(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "examples:" in shown
    for line in EXAMPLES[name]:
        assert f"\n  {line}\n" in shown


@pytest.mark.parametrize(("name", "line"), LINES)
def test_each_example_parses_as_a_command_line(name: str, line: str) -> None:
    if found := re.fullmatch(r'eval "\$\((.*)\)"', line):
        line = found[1]
    parts = [shlex.split(part) for part in line.split(" && ")]
    assert any(part[:2] == ["strategist", name] for part in parts)
    parser = whole_parser(COMMANDS)
    for _, *words in parts:
        assert "command" in parser.parse_args(words), words
