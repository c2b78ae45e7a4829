"""``strategist watch``: a study of another process, on a real terminal and as lines."""

import io
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from programs.quick import quick_tuning
from rich.console import Console
from terminal import Terminal
from tuner.studies import tuned
from tuner_stand_in import StandIn

from strategist.cli.watch_view import StudyView
from strategist.contract.measurement import Outcome
from strategist.contract.study import TrialState
from strategist.tuner import study as studies

COMMAND = (sys.executable, "-m", "strategist.cli.main")


def view_lines(study: studies.Study, width: int = 80, height: int = 24) -> list[str]:
    """Lines of the view on a screen of that size."""
    view = StudyView()
    view.take(study, ())
    console = Console(file=io.StringIO(), width=width, height=height, markup=False, highlight=False, force_terminal=False)
    lines = console.render_lines(view, console.options.update(height=height), pad=False)
    return ["".join(segment.text for segment in line).rstrip() for line in lines]


@pytest.mark.timeout(180)
def test_a_tuning_of_another_process_is_watched_until_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    tuning = subprocess.Popen(
        [*COMMAND, *quick_tuning(tmp_path, "wait"), "--fix", "micro_batch=4", "--trials", "2", "--steps", "4", "--quiet"],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    while not (folder / "trials").exists() or not list((folder / "trials").iterdir()):
        assert tuning.poll() is None
        time.sleep(0.02)
    with Terminal([*COMMAND, "watch", str(folder)], 100, 30, {}) as terminal:
        text = terminal.until("best ", "trial ", "device hours")
        assert text.startswith("tiny on 2xcpu, for throughput")
        (tmp_path / "go").touch()  # the second trial waits for it
        assert terminal.alternate
        assert terminal.end() == 0
        left = terminal.main.text
        assert "study " in left
        assert "finished: 2 of 2 trials finished" in left
    assert tuning.wait() == 0


def test_a_running_trial_is_shown_with_its_owner(tmp_path: Path) -> None:
    study = studies.read(tuned(tmp_path / "study", 3))
    *others, last = study.trials
    running = replace(last, state=TrialState.RUNNING.value, outcome=None, measurement=None, ended=None, owner="node-7:41")
    text = view_lines(replace(study, trials=(*others, running), status=studies.StudyStatus.RUNNING))
    assert re.match(r"Trial 3  for .* by node-7:41$", text[2]), text
    assert text[3].startswith("  predicted ")
    assert any(re.match(r"done +█+·+ 2 of 3 proposed$", line) for line in text)


def test_running_trials_beyond_the_screen_are_counted(tmp_path: Path) -> None:
    study = studies.read(tuned(tmp_path / "study", 3))
    (*_, last) = study.trials
    running = [replace(last, number=number, state=TrialState.RUNNING.value, measurement=None) for number in range(4, 11)]
    text = view_lines(replace(study, trials=(*study.trials, *running)), height=60)
    assert "and 3 more" in text
    short = view_lines(study, height=12)
    assert len(short) <= 12
    assert "Trials  the last " in "\n".join(short)


def test_a_study_without_a_successful_trial_is_shown(tmp_path: Path) -> None:
    study = studies.read(tuned(tmp_path / "study", 2, StandIn(outcome=Outcome.CRASH)))
    text = "\n".join(view_lines(study))
    assert "Nothing runs  finished" in text
    assert "no trial ended well yet" in text
    assert "predictions" not in text


def test_a_terminal_can_print_lines_on_request(tmp_path: Path) -> None:
    study = tuned(tmp_path / "study", 2)
    with Terminal([*COMMAND, "watch", str(study), "--lines", "--idle", "0"], 100, 30, {}) as terminal:
        assert terminal.end() == 0
        assert not terminal.alternate
        assert re.match(r"trial \d ok: ", terminal.main.text)
