"""Pages of commands contain all options of the parsers."""

import argparse
from collections.abc import Iterator

import pytest

from docs.commands import pages
from strategist.cli.exit_codes import EXIT_CODES
from strategist.cli.main import COMMANDS, main, whole_parser

GENERATED, PARSER = pages(), whole_parser(COMMANDS)


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers(below)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_row_with_a_help_text(name: str) -> None:
    [command] = [found for found in parsers(PARSER) if found.prog == f"strategist {name}"]
    for parser in parsers(command):
        part = GENERATED[f"commands/{name}.md"].partition(f"# {parser.prog}\n")[2]
        for option in parser._option_string_actions.keys() - {"-h", "--help"}:
            assert any(option in row.replace("`", " ").replace(",", " ").split() for row in part.split("\n| ")[1:]), option
    assert "|  |" not in GENERATED[f"commands/{name}.md"], "an option without a help"


def test_exit_codes_are_in_the_help_and_on_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for code, text in EXIT_CODES.items():
        assert f"\n  {code:<5}{text}\n" in shown
        assert f"| {code} | {text} |" in GENERATED["commands/README.md"]
