"""Progress of a tuning for programs: one JSON line per event, from begun to ended; and the quiet mode."""

import io
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from programs.quick import quick_tuning
from tuner.studies import DECK, REQUEST, tuned
from tuner_stand_in import SETTINGS, StandIn

from strategist.cli.main import main
from strategist.cli.tuning_progress import json_lines
from strategist.contract import codec
from strategist.contract.measurement import Outcome
from strategist.contract.plan import Plan
from strategist.contract.study import TrialState
from strategist.errors import InputError
from strategist.executors import processes
from strategist.executors.executor import TrialRunner
from strategist.ledger.ledger import Ledger
from strategist.tuner.event import EventType, TuneEvent
from strategist.tuner.json_lines import LineType, TuneLine
from strategist.tuner.limits import Limits
from strategist.tuner.tune import tune

COMMAND = (sys.executable, "-m", "strategist.cli.main")

Captured = pytest.CaptureFixture[str]


def lines(text: str) -> Iterator[TuneLine]:
    """Documents of the lines."""
    return (codec.loads(TuneLine, line) for line in text.splitlines())


def test_each_event_is_a_json_line_with_the_fields_of_study_watch(tmp_path: Path, capsys: Captured) -> None:
    arguments = [*quick_tuning(tmp_path), "--steps", "4", "--json-lines"]
    assert main([*arguments, "--trials", "1"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    begun, started, finished, ended = lines(out)
    assert [line.event.value for line in (begun, started, finished, ended)] == [
        "begun", "trial_started", "trial_finished", "ended",
    ]  # fmt: skip
    assert (begun.finished, begun.trials, begun.best, begun.trial) == (0, 1, None, None)
    assert (started.trial["number"], started.trial["state"], started.trial["outcome"]) == (1, "running", None)
    assert main(["study", "watch", str(tmp_path / "study"), "--idle", "0", "--json"]) == 0
    assert finished.trial == json.loads(capsys.readouterr().out)
    assert (finished.best, finished.best_step_seconds) == (1, finished.trial["step_seconds"])
    assert finished.ahead_of_first == 0
    assert finished.unlearned_step_error == finished.proposed_step_error > 0
    assert finished.device_hours > 0
    assert ended.why == "as many trials as were asked for are finished"
    assert ended.seconds_left == 0

    assert main([*arguments, "--trials", "2"]) == 0
    begun, started, finished, ended = lines(capsys.readouterr().out)
    assert (begun.finished, begun.best, finished.trial["number"], ended.finished) == (1, 1, 2, 2)
    assert ended.confirmation is not None or finished.trial["outcome"] != "ok"


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.full), signal.SIGTERM])
def test_the_last_line_of_an_interrupted_tuning_states_the_interruption(tmp_path: Path, number: signal.Signals) -> None:
    command = [*COMMAND, *quick_tuning(tmp_path), "--trials", "2", "--steps", "100000", "--json-lines"]
    tuner = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    begun, started = (codec.loads(TuneLine, tuner.stdout.readline()) for _ in range(2))  # each comes at once
    assert (begun.event, started.event) == (LineType.BEGUN, LineType.TRIAL_STARTED)
    tuner.send_signal(number)
    out, err = tuner.communicate()
    (ended,) = lines(out)
    assert (ended.event, ended.why) == (LineType.ENDED, "interrupted")
    assert (tuner.returncode, err) == (130, "strategist: interrupted\n")
    assert processes.tagged(f"{(tmp_path / 'study').resolve()}.") == {}
    with Ledger.open(tmp_path / "study") as ledger:
        assert [row.state for row in ledger.trials()] == [TrialState.QUEUED]


def test_a_broken_pipe_ends_the_tuning_and_releases_its_trial(tmp_path: Path) -> None:
    command = [*COMMAND, *quick_tuning(tmp_path), "--trials", "3", "--steps", "4", "--json-lines"]
    tuner = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    tuner.stdout.readline()
    tuner.stdout.close()
    assert tuner.stderr.read() == ""
    assert tuner.wait() == 141
    with Ledger.open(tmp_path / "study") as ledger:
        assert TrialState.RUNNING not in {row.state for row in ledger.trials()}


def test_a_quiet_tuning_prints_only_its_report(tmp_path: Path, capsys: Captured) -> None:
    arguments = [*quick_tuning(tmp_path), "--steps", "4", "--quiet"]
    assert main([*arguments, "--trials", "1"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("Best: trial 1, ")
    assert main([*arguments, "--trials", "2", "--json"]) == 0
    out, err = capsys.readouterr()
    assert (json.loads(out)["type"], err) == ("TuningResult", "")


def tuning_lines(folder: Path, *, trials: int, executor: StandIn, on_event=None) -> list[TuneLine]:
    """Lines printed by a tuning in this process."""
    out = io.StringIO()
    with redirect_stdout(out), json_lines("mine") as following:

        def take(event: TuneEvent) -> None:
            following.take(event)
            if on_event is not None:
                on_event(event)

        limits = Limits(trials=trials, confirm=0)
        following.end(
            tune(
                REQUEST,
                study=folder,
                limits=limits,
                runner=TrialRunner(executor=executor, settings=SETTINGS),
                deck=DECK,
                on_event=take,
            )
        )
    return list(lines(out.getvalue()))


def test_trials_of_other_tuners_have_lines_and_waiting_one_line(tmp_path: Path) -> None:
    with Ledger.open(tuned(tmp_path, 1)) as ledger:
        plan = ledger.trials()[0].plan_json
        ledger.enqueue("another", plan, "search")
        others_claim = ledger.claim("another", 60.0)
        looks = []

        def on_event(event: TuneEvent) -> None:
            looks.extend([event] if event.event_type is EventType.WAITING else [])
            if len(looks) == 3:
                measurement = StandIn().execute(codec.loads(Plan, plan), tmp_path / "other", SETTINGS)
                ledger.finish(others_claim, Outcome.OK, codec.dumps(measurement))
                looks.append(event)

        found = tuning_lines(tmp_path, trials=3, executor=StandIn(), on_event=on_event)
    assert [(line.event.value, line.trial and line.trial["number"]) for line in found] == [
        ("begun", None), ("trial_started", 3), ("trial_finished", 3), ("waiting", None), ("trial_finished", 2), ("ended", None),
    ]  # fmt: skip
    assert found[-2].finished == found[-1].finished == 3


def test_a_retried_trial_starts_twice_and_finishes_once(tmp_path: Path) -> None:
    class Shaky(StandIn):
        def execute(self, plan, folder, *more):
            outcome = Outcome.INFRASTRUCTURE if folder.name == "1-1" else Outcome.OK
            return StandIn(outcome=outcome).execute(plan, folder, *more)

    found = tuning_lines(tmp_path, trials=1, executor=Shaky())
    assert [line.event.value for line in found] == ["begun", "trial_started", "trial_started", "trial_finished", "ended"]
    assert found[3].trial["attempts"] == 2


def test_an_error_is_stated_on_the_last_line(tmp_path: Path, capsys: Captured) -> None:
    def refuse(folder: Path) -> None:
        raise InputError("torch", "is not installed", "install it")

    with pytest.raises(InputError), json_lines("mine") as following:
        tuned(tmp_path, 1, StandIn(before=refuse), on_event=following.take)
    *_, ended = lines(capsys.readouterr().out)
    assert (ended.event, ended.why) == (LineType.ENDED, "torch: is not installed; install it")


def test_a_tuning_that_never_began_prints_no_line(capsys: Captured) -> None:
    with pytest.raises(KeyboardInterrupt), json_lines("mine"):
        raise KeyboardInterrupt
    assert capsys.readouterr().out == ""


def test_names_in_json_lines_are_escaped_to_ascii(tmp_path: Path, capsys: Captured) -> None:
    with json_lines("学习") as following:
        tuned(tmp_path, 1, on_event=following.take)
    out = capsys.readouterr().out
    assert out.isascii()
    assert {line.study for line in lines(out)} == {"学习"}


def test_the_guide_names_every_field_in_order() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "studies.md").read_text(encoding="utf-8")
    table = guide.partition("<!-- lines: ")[2].partition("<!-- lines end -->")[0]
    named = [name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`([a-z_]+)`", row)]
    assert named == ["version", "type", *TuneLine.__dataclass_fields__]
    assert all(f"`{happened.value}`" in guide for happened in LineType)
