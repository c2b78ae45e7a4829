"""Output for terminals of any width and encoding."""

import io
import sys

import pytest

from strategist.cli import render
from strategist.cli.main import main
from strategist.report.text_blocks import bar

PLAN = ["plan", "--model", "tiny", "--gpus", "2xcpu", "--seq-len", "128", "--global-batch", "16", "--top", "2"]

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize("locale", ["C", "POSIX"])
def test_bars_are_ascii_in_a_c_locale(locale: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    render.show(bar(0.5, 4))
    assert capsys.readouterr().out == "##..\n"


def test_an_ascii_stream_shows_bars_and_escapes_other_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert main(["--version"]) == 0
    render.show(bar(0.5, 4))
    render.show_json(["序"])
    sys.stdout.flush()
    assert raw.getvalue().decode("ascii").endswith('##..\n[\n  "\\u5e8f"\n]\n')


@pytest.mark.parametrize("width", [40, 80, 200])
def test_an_answer_is_as_wide_as_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(PLAN) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(("  strategist ", "  --fix "))]
    assert 0.8 * min(width, 120) < max(map(len, lines)) <= width
