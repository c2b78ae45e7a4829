"""Commands of the guides print the shown output."""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from strategist.cli.main import main

ROOT = Path(__file__).parents[1]
GUIDES = [
    *(ROOT / "docs" / f"{name}.md" for name in ("index", "tutorial", "how-to", "faq", "by-hand")),
    ROOT / "cards" / "README.md",
    *sorted((ROOT / "examples" / "cards").glob("*/README.md")),
]


def transcript(guide: Path) -> Iterator[tuple[list[str], str]]:
    """Commands of a guide's console blocks, each with its shown output."""
    for block in re.findall(r"^```console\n(.*?)^```", guide.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for entry in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = entry.partition("\n")
            yield shlex.split(command), shown


def pattern(shown: str) -> str:
    """A pattern of these lines; ``...`` alone stands for any lines, within a line for any part of the line."""
    lines = (r"(?:.*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + r"\n" for line in shown.splitlines())
    return "".join(lines)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "guide",
    [
        pytest.param(
            path, id=f"{path.parent.name}-{path.stem}", marks=[pytest.mark.full] if path.stem in ("tutorial", "by-hand") else []
        )
        for path in GUIDES
    ],  # the tutorial tunes with real ranks; plans for thousands of devices take most of a minute
)
def test_every_command_of_a_guide_prints_the_shown_output(
    guide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "guide"
    shutil.copytree(guide.parent, folder) if "examples" in guide.parts else folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("COLUMNS", raising=False)
    commands = list(transcript(guide))
    assert commands
    for (program, *arguments), shown in commands:
        assert program == "strategist"
        assert main(arguments) == int("Nothing fits" in shown), capsys.readouterr().err
        printed = capsys.readouterr().out
        assert re.fullmatch(pattern(shown), printed), f"strategist {shlex.join(arguments)}\n{printed}"


def test_omitted_lines_match_an_ellipsis() -> None:
    assert re.fullmatch(pattern("a\n...\nd ...\n"), "a\nb\nc\nd e\n")
    assert re.fullmatch(pattern("a\n...\n"), "a\n")
    assert not re.fullmatch(pattern("a\nc\n"), "a\nb\nc\n")
    assert not re.fullmatch(pattern("a.c\n"), "abc\n")
