"""``strategist study`` on the command line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tuner.studies import REQUEST, tuned

from strategist.cli.main import main
from strategist.cli.study import SECTIONS as STUDY_SECTIONS
from strategist.contract import codec
from strategist.contract.goals import Goals
from strategist.contract.study import Study
from strategist.report.study import SECTIONS
from strategist.tuner.study import read

COMMAND = (sys.executable, "-m", "strategist.cli.main")
ASKED = ["--model", "tiny", "--gpus", "4xcpu", "--seq-len", "128", "--global-batch", "16", "--precision", "fp32"]
FIXED = [word for name, value in REQUEST.fix.items() for word in ("--fix", f"{name}={value}")]

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies")
    tuned(folder / "one", 2)
    return folder


def output(capsys: Captured, *arguments: object, code: int = 0) -> str:
    """The command's standard output, or standard error if it fails."""
    capsys.readouterr()
    assert main(["study", *map(str, arguments)]) == code
    out, err = capsys.readouterr()
    return out if code == 0 else err


def test_studies_are_listed(studies: Path, capsys: Captured) -> None:
    text = output(capsys, "list", studies)
    assert "tiny" in text
    assert "finished" in text
    (listed,) = json.loads(output(capsys, "list", studies, "--json"))
    assert (listed["trials"], listed["finished"], listed["status"]) == (2, 2, "finished")
    assert output(capsys, "list", studies / "one" / "trials") == "there is no study\n"


def test_a_study_is_shown_on_one_screen_and_completely_as_json(
    studies: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    screen = output(capsys, "show", studies / "one")
    assert screen.startswith("Best: trial ")
    assert len(screen.splitlines()) <= 40
    text = output(capsys, "show", studies / "one", "--show", "trials")
    assert "--show trails: is not known; did you mean trials?" in output(capsys, "show", studies, "--show", "trails", code=2)
    assert tuple(SECTIONS) == STUDY_SECTIONS
    study = codec.loads(Study, output(capsys, "show", studies / "one", "--json"))
    assert f"{study.best}* " in text
    assert all(trial.measurement for trial in study.trials)


def test_trials_are_exported_imported_and_merged(studies: Path, tmp_path: Path, capsys: Captured) -> None:
    table = tmp_path / "t.csv"
    assert output(capsys, "export", studies / "one", "--to", table) == f"2 trials written to {table}\n"
    new = tmp_path / "two"
    assert output(capsys, "import", table, "--study", new, *ASKED, *FIXED) == f"2 trials imported into {new}\n"
    both = tmp_path / "both"
    assert "2 trials imported into" in output(capsys, "merge", studies / "one", new, "--into", both)
    assert "2 are of candidates that it had already" in output(capsys, "import", table, "--study", both)


def test_watch_prints_one_line_per_trial(studies: Path, capsys: Captured) -> None:
    lines = output(capsys, "watch", studies / "one", "--idle", "0").splitlines()
    assert [line.split(":")[0] for line in lines] == ["trial 1 ok", "trial 2 ok"]
    assert sum("the best so far" in line for line in lines) == 1
    rows = [json.loads(line) for line in output(capsys, "watch", studies / "one", "--idle", "0", "--json").splitlines()]
    assert [row["number"] for row in rows] == [1, 2]
    assert all(row["step_seconds"] > 0 for row in rows)


def test_a_study_is_plotted(studies: Path, tmp_path: Path, capsys: Captured) -> None:
    assert output(capsys, "plot", studies / "one", "--out", tmp_path / "p.svg") == f"plot written to {tmp_path / 'p.svg'}\n"
    svg = (tmp_path / "p.svg").read_text(encoding="utf-8")
    trials = read(studies / "one").trials
    assert svg.count("<circle") == len(trials)
    assert "trials in their order, and the best so far" in svg
    assert "nan" not in svg


def test_a_pareto_front_is_shown_and_plotted(studies: Path, tmp_path: Path, capsys: Captured) -> None:
    goals = Goals(objectives=("throughput", "memory"), least_tokens_per_second=12_000.0)
    place = tuned(tmp_path / "both", 5, goals=goals)
    study = read(place)
    text = output(capsys, "show", place, "--explain")
    assert "for throughput and memory, at least 12,000 tokens/s" in " ".join(text.split())
    assert "Pareto front" in text
    assert f"{study.best}*+" in text
    assert ("ok, misses tokens/s" in text) == any(trial.misses for trial in study.trials)
    shown = codec.loads(Study, output(capsys, "show", place, "--json"))
    assert (shown.front, shown.goals) == (study.front, goals)
    output(capsys, "plot", place, "--out", tmp_path / "p.svg")
    svg = (tmp_path / "p.svg").read_text(encoding="utf-8")
    assert svg.count('class="dot front"') == len(study.front)
    assert "peak memory, GiB" in svg
    watched = output(capsys, "watch", place, "--idle", "0")
    assert watched.count("on the front so far") == len(study.front) - 1


def test_watch_ends_on_ctrl_c(studies: Path) -> None:
    watcher = subprocess.Popen(
        [*COMMAND, "study", "watch", str(studies / "one"), "--idle", "1000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watcher.stdout.readline().startswith("trial 1 ok")
    watcher.send_signal(2)
    assert watcher.communicate()[1] == "strategist: interrupted\n"
    assert watcher.returncode == 130


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "COMMAND"),
        ("lsit", "did you mean list"),
        ("list nowhere", "nowhere: is not a folder"),
        ("list postgresql://ada:SECRET@db/tuning", "holds a password"),
        ("list postgresql:///db?host=/nowhere", "cannot be reached"),
        ("show postgresql:///db?host=/nowhere&study=x", "cannot be reached"),
        ("show nowhere", "there is no study in this folder; strategist study list"),
        ("show", "STUDY"),
        ("show postgresql://ada@db/tuning", "names no study; add ?study=NAME"),
        ("show postgresql:///tuning?study=x&password=SECRET", "holds a password"),
        ("watch nowhere", "there is no study"),
        ("watch nowhere --idle soon", "--idle soon: a whole number of at most 12 digits is needed"),
        ("export nowhere --to t.csv", "there is no study"),
        ("export nowhere --to t.xlsx", "has no known format"),
        ("export nowhere", "--to"),
        ("plot nowhere --out p.svg", "there is no study"),
        ("plot nowhere --out p.png", "--out p.png: has no known format; write FILE.svg"),
        ("import t.csv --study nowhere", "there is no study in this folder"),
        ("import t.csv --study nowhere --seq-len 4", "--model: is missing"),
        ("import t.csv --study nowhere --model tiny --gpus 4xcpu", "t.csv: cannot be read"),
        ("merge nowhere --into both", "there is no study"),
        ("merge nowhere --into both --ledger db", "there is no study"),
    ],
)
def test_wrong_input_prints_one_error_line(
    arguments: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    text = output(capsys, *arguments.split(), code=2)
    assert text.startswith("strategist: ")
    assert text.count("\n") == 1
    assert words in text
    assert "SECRET" not in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--warm nowhere", "there is no study in this folder"),
        ("--warm postgresql://ada:SECRET@db/tuning?study=x", "holds a password"),
        ("--warm postgresql://ada:SECRET@db/tuning?study=x --sampler tpe", "--sampler tpe: takes in nothing of other studies"),
        ("--warm {one} --shadow", "holds real trials, this study shadow ones"),
    ],
)
def test_an_unusable_warm_start_is_refused_before_any_file_is_written(
    arguments: str, words: str, studies: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    named = [word.format(one=studies / "one") for word in arguments.split()]
    assert main(["tune", *ASKED, "--study", "new", *named]) == 2
    text = capsys.readouterr().err
    assert text.startswith("strategist: ")
    assert text.count("\n") == 1
    assert words in text
    assert "SECRET" not in text
    assert list(tmp_path.iterdir()) == []


def test_an_unreadable_study_is_listed_as_damaged(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "study.sqlite").write_text("no database" * 200)
    capsys.readouterr()
    assert main(["study", "list", str(tmp_path)]) == 1
    assert "is damaged or not a study" in " ".join(capsys.readouterr().out.split())
