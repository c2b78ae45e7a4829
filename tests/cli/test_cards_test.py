"""``strategist cards test``: evaluates cases, and runs examples as programs."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from strategist.cli.main import main
from strategist.executors import processes

COMMAND = (sys.executable, "-m", "strategist.cli.main")
CARD = """\
StrategyCard:
  id: MY-001
  module: tp
  intent: Why
  policies:
    - {id: law, when: layout.tp > 4, forbid: candidate, because: It is.}
  cases:
    - {given: {candidate: {tp: 8}}, expect: forbidden}
    - {given: {candidate: {tp: 2}}, expect: VERDICT}
  example:
    - words
    - ranks: 2
      run: |
        import os

        assert os.environ["WORLD_SIZE"] == "RANKS"
"""


def written(folder: Path, *, name: str = "my-card.yaml", verdict: str = "allowed", ranks: int = 2) -> str:
    path = folder / name
    path.write_text(CARD.replace("VERDICT", verdict).replace("RANKS", str(ranks)), encoding="utf-8")
    return str(path)


@pytest.mark.torch
@pytest.mark.timeout(120)
def test_a_sound_card_passes_and_failures_name_their_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sound, path = Path(written(tmp_path)), written(tmp_path, name="bad.yaml", verdict="forbidden", ranks=3)
    sound.write_text(sound.read_text(encoding="utf-8").replace("MY-001", "MY-002"), encoding="utf-8")
    assert main(["cards", "test", str(tmp_path)]) == 1
    card, passed, case, example, last = capsys.readouterr().out.splitlines()
    assert card.startswith("MY-001     FAILED")
    assert case == f"{path}:9: MY-001 case 2: the candidate is allowed, not forbidden"
    assert example == f"{path}:16: MY-001 example 2, line 3 of its script: AssertionError"
    assert passed.startswith("MY-002     ok     2 cases, 1 examples, ")
    assert last == "2 cards, 4 cases, 2 examples (0 refused as documented), failures: 2"


@pytest.mark.torch
@pytest.mark.timeout(120)
@pytest.mark.full
def test_json_names_the_failed_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, ranks=3)
    assert main(["cards", "test", str(tmp_path), "--json"]) == 1
    (card,) = json.loads(capsys.readouterr().out)
    assert (card["card"], card["path"], card["cases"], card["examples"]) == ("MY-001", path, 2, 1)
    (failure,) = card["failures"]
    assert (failure["part"], failure["number"], failure["line"], failure["script_line"]) == ("example", 2, 16, 3)


def test_json_names_the_failed_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(written(tmp_path, verdict="forbidden"))
    path.write_text(path.read_text(encoding="utf-8").partition("    - ranks: 2")[0], encoding="utf-8")
    assert main(["cards", "test", str(path), "--json"]) == 1
    (card,) = json.loads(capsys.readouterr().out)
    (failure,) = card["failures"]
    assert (card["card"], failure["part"], failure["number"], failure["line"]) == ("MY-001", "case", 2, 9)


def test_a_card_without_scripts_starts_no_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(written(tmp_path))
    path.write_text(path.read_text(encoding="utf-8").partition("    - ranks: 2")[0], encoding="utf-8")
    assert main(["cards", "test", "--cards", str(tmp_path), "MY-001"]) == 0
    assert "1 cards, 2 cases, 0 examples" in capsys.readouterr().out


@pytest.mark.parametrize("target", ["NO-001", "no/such/folder", "no-such.yaml"])
def test_an_unknown_card_prints_one_error_line(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cards", "test", target]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("strategist: ")
    assert target in output.err
    assert output.err.count("\n") == 1


@pytest.mark.torch
@pytest.mark.timeout(120)
@pytest.mark.full
def test_an_interrupted_card_test_leaves_no_process(tmp_path: Path) -> None:
    path = Path(written(tmp_path))
    begun = tmp_path / "begun"
    endless = f"        import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(600)\n"
    path.write_text(path.read_text(encoding="utf-8") + endless, encoding="utf-8")
    command = subprocess.Popen([*COMMAND, "cards", "test", str(path)], stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    while not begun.exists():
        assert command.poll() is None
        time.sleep(0.05)
    command.send_signal(signal.SIGINT)
    _, errors = command.communicate()
    assert (command.returncode, errors) == (130, "strategist: interrupted\n")
    assert processes.tagged(f"examples.{command.pid}.") == {}


@pytest.mark.torch
@pytest.mark.timeout(120)
@pytest.mark.full
def test_lint_resolves_symbols_and_runs_examples_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(written(tmp_path, ranks=3))
    source = "  source_refs:\n    - {symbol: torch.nn.Lineer}\n"
    path.write_text(path.read_text(encoding="utf-8").replace("  example:\n", source + "  example:\n"), encoding="utf-8")
    place = f"{path}:11:16: error CARD042"
    assert main(["cards", "lint", str(path), "--select", "CARD042,CARD044"]) == 1
    (line, _) = capsys.readouterr().out.splitlines()
    assert line.startswith(place)
    assert "did you mean torch.nn.Linear" in line
    assert main(["cards", "lint", str(path), "--select", "CARD042,CARD044", "--no-sources", "--run-examples"]) == 1
    (line, _) = capsys.readouterr().out.splitlines()
    assert "error CARD044 example 2 fails: line 3: AssertionError" in line
    assert main(["cards", "lint", str(path), "--select", "CARD042,CARD044", "--no-sources"]) == 0
