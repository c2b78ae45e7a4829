"""The progress line of long commands on a terminal."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from terminal import Terminal

from strategist.cli.progress_bar import progress_text
from strategist.contract.progress import Stage

LONG_COMMAND = """
import sys, time
from pathlib import Path
from strategist.cli import main, progress_bar, render
from strategist.contract.progress import counted
progress_bar.SILENT_SECONDS, progress_bar.REDRAW_SECONDS = 0.05, 0.02
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
"""A command whose parts wait for a file with their number."""


def test_the_progress_line_stays_below_output_and_disappears_at_the_end(tmp_path: Path) -> None:
    script = tmp_path / "patient.py"
    script.write_text(LONG_COMMAND, encoding="utf-8")
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


def test_no_progress_is_drawn_without_a_terminal(tmp_path: Path) -> None:
    script = tmp_path / "patient.py"
    script.write_text(LONG_COMMAND, encoding="utf-8")
    for part in range(3):
        (tmp_path / str(part)).touch()
    ended = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, check=True)
    assert ended.stdout == "over\n"
    assert ended.stderr == "strategist: part 0\nstrategist: part 1\nstrategist: part 2\n"


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ((), "for 9 s"),
        (((0, 4, "plans"),), "0 of 4 plans, for 9 s"),
        (((1, 4, "plans"),), "1 of 4 plans, about 24 s left"),
        (((1, 2, "plans"), (1, 2, "ranks")), "1 of 2 plans, 1 of 2 ranks, about 2.67 s left"),
    ],
)
def test_the_remaining_time_is_estimated_from_finished_parts(stages: tuple[tuple[int, int, str], ...], message: str) -> None:
    under_way = tuple(Stage(units=units, total=total, done=done, begun=12.0) for done, total, units in stages)
    assert progress_text(under_way, now=20.0, begun=11.0) == message
