"""What a terminal shows while a command takes its time."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from terminal import Terminal

from strategist.cli.progress_bar import words
from strategist.contract.progress import Stage

PATIENT = """
import sys, time
from pathlib import Path
from strategist.cli import main, progress_bar, render
from strategist.contract.progress import counted
progress_bar.SILENT_SECONDS, progress_bar.EVERY_SECONDS = 0.05, 0.02
def run(options):
    for part in counted(range(3), "parts"):
        while not Path(sys.argv[1], str(part)).exists():
            time.sleep(0.01)
        render.print_note(f"part {part}")
    render.line("over")
    return 0
main.COMMANDS = {"doctor": "x"}
import strategist.cli.doctor as doctor
doctor.run = run
sys.exit(main.main(["doctor"]))
"""
"""A command whose parts take until a file of its number is there."""


def test_it_says_how_far_it_is_below_what_is_printed_and_leaves_nothing(tmp_path: Path) -> None:
    script = tmp_path / "patient.py"
    script.write_text(PATIENT, encoding="utf-8")
    with Terminal([sys.executable, str(script), str(tmp_path)], 60, 10, {}) as terminal:
        assert terminal.until("strategist: 0 of 3 parts, for ")
        (tmp_path / "0").touch()
        assert re.search(r"part 0\nstrategist: 1 of 3 parts, about \S+ \w+ left$", terminal.until("part 0", "1 of 3 parts"))
        (tmp_path / "1").touch()
        terminal.until("2 of 3 parts")
        (tmp_path / "2").touch()
        assert terminal.end() == 0
        assert not terminal.main.overrun
        assert "parts" not in terminal.main.text
        assert terminal.main.text.endswith("strategist: part 2\nover")


def test_nothing_is_drawn_where_no_terminal_is(tmp_path: Path) -> None:
    script = tmp_path / "patient.py"
    script.write_text(PATIENT, encoding="utf-8")
    for part in range(3):
        (tmp_path / str(part)).touch()
    ended = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, check=True)
    assert ended.stdout == "over\n"
    assert ended.stderr == "strategist: part 0\nstrategist: part 1\nstrategist: part 2\n"


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ((), "for 9 s"),
        (((0, 4, "plans"),), "0 of 4 plans, for 9 s"),
        (((1, 4, "plans"),), "1 of 4 plans, about 24 s left"),
        (((1, 2, "plans"), (1, 2, "ranks")), "1 of 2 plans, 1 of 2 ranks, about 2.67 s left"),
    ],
)
def test_what_is_left_is_told_by_what_is_done(stages: tuple[tuple[int, int, str], ...], said: str) -> None:
    under_way = tuple(Stage(what=what, total=total, done=done, begun=12.0) for done, total, what in stages)
    assert words(under_way, now=20.0, begun=11.0) == said
