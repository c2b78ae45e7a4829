"""The screen of a running tuning, on real terminals with real events, and its restoration at the end."""

import io
import os
import re
import shlex
import signal
import subprocess
import sys
from itertools import cycle
from pathlib import Path

import pytest
from programs.quick import quick_tuning
from rich.console import Console
from terminal import Terminal
from tuner.studies import DECK, REQUEST, tuned
from tuner_stand_in import SETTINGS, StandIn

from strategist.cli.tune_view import TuningView
from strategist.contract import codec
from strategist.contract.measurement import Outcome
from strategist.contract.plan import Plan
from strategist.contract.study import TrialState
from strategist.executors.executor import TrialRunner
from strategist.ledger.ledger import Ledger
from strategist.tuner.event import EventType, TuneEvent
from strategist.tuner.limits import Limits
from strategist.tuner.tune import tune

COMMAND = (sys.executable, "-m", "strategist.cli.main")
TITLE = "tiny on 2xcpu, for throughput"


def tuning(folder: Path, *more: str, width: int = 80, height: int = 24, fault: str = "", **environment: str) -> Terminal:
    """``strategist tune`` of a quick program on a terminal."""
    return Terminal([*COMMAND, *quick_tuning(folder, fault), *more], width, height, environment)


@pytest.mark.parametrize(
    ("width", "height", "ended_by"), [(80, 24, "Ctrl-C"), pytest.param(200, 50, "SIGTERM", marks=pytest.mark.full)]
)
def test_an_interrupted_tuning_restores_the_terminal_and_leaves_the_last_view(
    tmp_path: Path, width: int, height: int, ended_by: str
) -> None:
    with tuning(
        tmp_path, "--fix", "micro_batch=4", "--trials", "2", "--steps", "200", width=width, height=height, fault="hang"
    ) as terminal:  # the first trial takes seconds, the estimate for the second
        text = terminal.until("Trial 2 of 2  ", "step ", "1* dp_shard 2")
        assert terminal.alternate
        assert not terminal.cursor_shown
        assert text.startswith(TITLE)
        assert re.search(r"^1\* dp_shard 2, micro-batch 4x1 +ok ", text, re.MULTILINE)
        for words in ("best ", "the cost model's first choice", "predictions ", "learned ", "done ", "1 of 2 trials, about"):
            assert words in text
        terminal.press(b"\x03") if ended_by == "Ctrl-C" else terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end() == 130
        assert not terminal.alternate
        assert terminal.cursor_shown
        assert not terminal.screen.overrun
        assert terminal.main.text.startswith(TITLE)
        assert "Trial 2 of 2  " in terminal.main.text
        assert terminal.main.text.endswith("strategist: interrupted")
    with Ledger.open(tmp_path / "study") as ledger:
        assert [row.state for row in ledger.trials()] == [TrialState.FINISHED, TrialState.QUEUED]


def test_the_report_is_printed_on_the_main_screen_at_the_end(tmp_path: Path) -> None:
    with tuning(tmp_path, "--trials", "1", "--steps", "4") as terminal:
        assert terminal.end() == 0
        assert b"\x1b[?1049h" in terminal.written
        assert not terminal.alternate
        assert terminal.cursor_shown
        assert TITLE not in terminal.main.text
        assert terminal.main.text.endswith("-o study.html")
        assert "best-plan.json" in terminal.main.text


def test_the_view_follows_resizing_and_releases_the_terminal_while_stopped(tmp_path: Path) -> None:
    with tuning(tmp_path, "--trials", "2", "--steps", "100000", COLUMNS="300", LINES="90", NO_COLOR="1") as terminal:
        terminal.until("Trial 1 of 2  measure", "best ")
        for width, height in ((50, 12), (120, 40)):
            terminal.resize(width, height)
            terminal.until_drawn_again()
            assert terminal.shown.startswith(TITLE[:19])
            assert terminal.shown.count(TITLE[:19]) == 1
            assert terminal.shown.count("Trial 1 of 2") == 1
        terminal.press(b"\x1a")
        _, status = os.waitpid(terminal.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        terminal.until_left()
        assert terminal.cursor_shown
        terminal.process.send_signal(signal.SIGCONT)
        terminal.until("Trial 1 of 2  measure")
        assert terminal.alternate
        assert not terminal.cursor_shown
        terminal.press(b"\x03")
        assert terminal.end() == 130
        assert not terminal.alternate
        assert b"\x1b[1m" in terminal.written
        assert not re.search(rb"\x1b\[[0-9;]*[349][0-9][;m]", terminal.written)


def test_only_a_foreground_terminal_that_can_draw_has_a_screen() -> None:
    command_line = [sys.executable, "-c", "from strategist.cli import render; print(f'drawn: {render.has_screen()}')"]
    in_the_background = ["bash", "-c", f"set -m; {shlex.join(command_line)} & wait"]
    for command, name, expected in (
        (command_line, "xterm-256color", True),
        (command_line, "dumb", False),
        (command_line, "", False),
        (in_the_background, "xterm-256color", False),
    ):
        with Terminal(command, 80, 24, {"TERM": name}) as terminal:
            assert terminal.end() == 0
            assert f"drawn: {expected}" in terminal.main.text, (command, name)
    coloured = {**os.environ, "FORCE_COLOR": "1", "TTY_INTERACTIVE": "1"}
    done = subprocess.run(command_line, env=coloured, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("drawn: False\n", "")


@pytest.mark.full
@pytest.mark.parametrize("name", ["dumb", ""])
def test_a_dumb_terminal_prints_lines(tmp_path: Path, name: str) -> None:
    with tuning(tmp_path, "--trials", "1", "--steps", "4", TERM=name) as terminal:
        assert terminal.end() == 0
        assert b"\x1b[?" not in terminal.written
        assert b"strategist: trial 1 ok: step " in terminal.written


@pytest.mark.full
def test_a_background_job_prints_lines(tmp_path: Path) -> None:
    command = shlex.join([*COMMAND, *quick_tuning(tmp_path), "--trials", "1", "--steps", "4"])
    with Terminal(["bash", "-c", f"set -m; {command} & wait"], 80, 24, {}) as terminal:
        assert terminal.end() == 0
        assert b"\x1b[?" not in terminal.written
        assert b"strategist: trial 1 ok: step " in terminal.written


@pytest.mark.full
def test_a_redirected_tuning_prints_lines_despite_forced_colors(tmp_path: Path) -> None:
    command = [*COMMAND, *quick_tuning(tmp_path), "--trials", "1", "--steps", "4"]
    environment = {**os.environ, "FORCE_COLOR": "1", "TTY_INTERACTIVE": "1"}
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, check=True)
    assert re.match(r"strategist: trial 1 ok: step [^\n]*; the best so far; 1 of 1 trials\n$", done.stderr)


class Mixed(StandIn):
    """The second trial runs out of memory, the fourth does not start the first time."""

    def execute(self, plan, folder, *more):
        outcome = {"2-1": Outcome.OOM, "4-1": Outcome.INFRASTRUCTURE}.get(folder.name, Outcome.OK)
        return StandIn(outcome=outcome).execute(plan, folder, *more)


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> list[TuneEvent]:
    """All events of a tuning of 9 trials."""
    received: list[TuneEvent] = []
    study, limits = tmp_path_factory.mktemp("live"), Limits(trials=9, confirm=0, minutes=600, device_hours=500)
    tune(
        REQUEST,
        study=study,
        limits=limits,
        runner=TrialRunner(executor=Mixed(), settings=SETTINGS),
        deck=DECK,
        on_event=received.append,
    )
    return received


def view_lines(events: list[TuneEvent], width: int, height: int) -> list[str]:
    """The view's lines after the events, on a screen of that size."""
    view = TuningView("studies/mine")
    for event in events:
        view.take(event)
    return drawn(view, width, height)


def drawn(view: TuningView, width: int, height: int) -> list[str]:
    """The view's lines on a screen of that size."""
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, markup=False, highlight=False, emoji=False)
    console.print(view, height=height)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_the_view_fits_any_screen(events: list[TuneEvent]) -> None:
    view = TuningView("studies/mine")
    for place, (event, (width, height)) in enumerate(zip(events, cycle([(40, 10), (80, 24), (120, 30), (200, 50)]))):
        view.take(event)
        if place % 5:
            continue
        lines = drawn(view, width, height)
        assert max(map(len, lines)) <= width
        if height >= 24:
            assert len(lines) <= height


def test_the_last_trials_that_fit_are_shown(events: list[TuneEvent]) -> None:
    lines = view_lines(events, 80, 20)
    heading = next(place for place, line in enumerate(lines) if line.startswith("Trials"))
    numbers = [int(line.split()[0].removesuffix("*")) for line in lines[heading + 2 :]]
    assert numbers == list(range(10 - len(numbers), 10))
    assert 1 < len(numbers) < 9
    assert len(lines) == 20
    assert lines[heading] == f"Trials  the last {len(numbers)} of 9"
    assert lines[heading + 1].split() == ["#", "settings", "outcome", "predicted", "step", "by"]


def test_a_wide_screen_shows_all_columns(events: list[TuneEvent]) -> None:
    lines = view_lines(events, 200, 50)
    heading = lines.index("Trials")
    assert lines[heading + 1].split() == ["#", "settings", "outcome", "predicted", "step", "tok/s", "peak", "by"]
    assert "oom" in lines[heading + 3].split()
    assert sum(line.lstrip().split()[0].endswith("*") for line in lines[heading + 2 :]) == 1


def test_the_view_shows_the_best_predictions_calibration_and_limits(events: list[TuneEvent]) -> None:
    text = " ".join(" ".join(view_lines(events, 200, 50)).split())
    assert re.search(r"best trial \d+: [^;]+ tokens/s, [^;]+ MiB; (the cost model's first choice|.* ahead of trial 1)", text)
    assert re.search(r"predictions off by \S+% in the median, \S+% without what was learned; latest( \S+%){6} ", text)
    assert re.search(r"learned .*compute x1 -> x", text)
    assert re.search(r"9 of 9 trials spent \d of 600 minutes, \S+ of 500 device hours", text)
    command_line = max(place for place, event in enumerate(events, 1) if event.expected_gain is not None)
    assert re.search(
        r"expected +the search hopes to gain .*% with its next trial", "\n".join(view_lines(events[:command_line], 80, 24))
    )
    first = " ".join(view_lines(events[:1], 80, 24))
    assert "Choosing what to try next" in first
    assert "no trial ended well yet" in first
    started = next(place for place, event in enumerate(events, 1) if event.event_type is EventType.STARTED)
    assert "Trial 1 of 9  starting" in view_lines(events[:started], 80, 24)


def test_trials_of_other_tuners_are_shown_while_waiting(tmp_path: Path) -> None:
    received: list[TuneEvent] = []
    with Ledger.open(tuned(tmp_path, 1)) as ledger:
        plan = ledger.trials()[0].plan_json
        for number in range(2, 6):
            ledger.enqueue(f"another {number}", plan, "search")
        others = [ledger.claim("another", 60.0) for _ in range(4)]

        def take(event: TuneEvent) -> None:
            received.append(event)
            if event.event_type is EventType.WAITING:
                measurement = StandIn().execute(codec.loads(Plan, plan), tmp_path / f"other-{len(others)}", SETTINGS)
                ledger.finish(others.pop(), Outcome.OK, codec.dumps(measurement))

        limits = Limits(trials=6, confirm=0)
        tune(
            REQUEST,
            study=tmp_path,
            limits=limits,
            runner=TrialRunner(executor=StandIn(), settings=SETTINGS),
            deck=DECK,
            on_event=take,
        )
    moved = next(place for place, event in enumerate(received, 1) if event.event_type is EventType.PROGRESS)
    lines = view_lines(received[:moved], 80, 24)
    assert lines[2].startswith("Trial 6 of 6  measure, step 1")
    assert [line.partition(":")[0] for line in lines[4:7]] == [
        "Trial 2, of another tuner", "Trial 3, of another tuner", "and 2 more of other tuners",
    ]  # fmt: skip
    waiting = [place for place, event in enumerate(received, 1) if event.event_type is EventType.WAITING]
    assert view_lines(received[: waiting[0]], 80, 24)[2] == "Waiting  for trials of other tuners"
    assert "6 of 6 trials" in "".join(view_lines(received, 80, 24))
