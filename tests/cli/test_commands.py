"""Commands that print: plan as text and JSON, cards, profiles, explain."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from strategist.cli.main import COMMANDS, main
from strategist.contract import codec
from strategist.contract.answer import Answer
from strategist.contract.plan import Plan

LARGE = ["plan", "--model", "32b", "--gpus", "8x24GB"]
SMALL = ["plan", "--model", "1b", "--gpus", "8xH100"]
TINY = ["plan", "--model", "tiny", "--gpus", "2xcpu", "--seq-len", "128", "--global-batch", "16", "--backend", "native"]
HEAVY = ("torch", "optuna", "pandas", "jsonschema", "transformers", "sqlite3", "sqlalchemy")


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("plan") / "plan.json"
    assert main([*TINY, "-o", str(file), "--json"]) == 0
    return file


def plan_in_new_process(folder: Path, *request: str, seed: str = "0") -> str:
    """Output of a request in a new interpreter; checks that no heavy module is imported and stderr is empty."""
    program = (
        "import sys; from strategist.cli.main import main; code = main(sys.argv[2:])\n"
        "print([name for name in sys.argv[1].split() if name in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    command = [sys.executable, "-c", program, " ".join(HEAVY), *request]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"PYTHONHASHSEED": seed}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=True)
    assert done.stderr == "[]\n"
    return done.stdout


def test_the_first_command_of_the_readme_imports_nothing_heavy(tmp_path: Path) -> None:
    shown = plan_in_new_process(tmp_path, *LARGE)
    assert "\x1b" not in shown
    assert all(
        len(line) <= 80 or line.startswith(("  --fix ", "  strategist ")) for line in shown.splitlines()
    )  # a command line to paste is not wrapped
    for words in ("Best plan", "host memory", "lora", "qlora", "RTX4090", "Assumed", "strategist run plan.json"):
        assert words in shown


def imported_modules(*arguments: str) -> set[str]:
    """Modules that a command has imported when it exits."""
    program = "import sys; from strategist.cli.main import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_the_help_imports_no_planner() -> None:
    found = imported_modules("--help")
    assert "strategist.cli.main" in found
    assert found.isdisjoint({"numpy", "yaml", "rich", "strategist.api", "strategist.planning.planner", "strategist.cards.deck"})


def test_a_second_plan_reads_the_cache_and_imports_no_other_command() -> None:
    imported_modules(*SMALL)
    found = imported_modules(*SMALL, "--json")
    assert "strategist.planning.planner" in found
    packages = {name.split(".")[1] for name in found if name.startswith("strategist.")}
    assert packages.isdisjoint({"accuracy", "agent", "executors", "formats", "launch", "ledger", "lint", "report", "tuner"})
    assert found.isdisjoint({"yaml", "rich", "strategist.cards.reader", "strategist.contract.measurement"})


def test_equal_requests_print_equal_bytes_and_import_nothing_heavy(tmp_path: Path) -> None:
    first, second = (plan_in_new_process(tmp_path, *SMALL, "--json", "-o", f"{seed}.json", seed=seed) for seed in ("1", "2"))
    assert first == second
    assert json.loads(first)["type"] == "Answer"
    assert (tmp_path / "1.json").read_bytes() == (tmp_path / "2.json").read_bytes()


def test_the_plan_file_is_the_best_plan_and_round_trips(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TINY, "--json", "-o", str(tmp_path / "plan.json")]) == 0
    best = codec.loads(Answer, capsys.readouterr().out).plans[0]
    plan = codec.load(Plan, tmp_path / "plan.json")
    assert plan == best == plan.identified()
    assert codec.dumps(plan) == (tmp_path / "plan.json").read_text(encoding="utf-8")


def test_no_plan_file_is_written_if_nothing_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "plan.json"
    assert main(["plan", "--model", "32b", "--gpus", "4x24GB", "--host-memory", "16GiB", "-o", str(target)]) == 1
    out, err = capsys.readouterr()
    assert not target.exists()
    assert "Nothing fits" in out
    assert "Alternatives that fit" in out
    assert "is not written" in err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert f"usage: strategist {command}" in capsys.readouterr().out


def test_help_lists_all_commands_and_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all(command in out for command in COMMANDS)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("strategist ")


def test_cards_are_listed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cards", "list", "--json"]) == 0
    cards = json.loads(capsys.readouterr().out)
    assert len(cards) >= 15
    assert main(["cards", "list"]) == 0
    listed = capsys.readouterr().out
    assert all(card["id"] in listed for card in cards)
    assert main(["cards", "show", cards[0]["id"]]) == 0
    assert cards[0]["id"] in capsys.readouterr().out
    assert main(["cards", "show", cards[0]["id"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["StrategyCard"]["id"] == cards[0]["id"]


def test_the_shipped_cards_are_sound(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cards", "lint", "--no-sources"]) == 0
    capsys.readouterr()
    assert main(["cards", "lint", "--no-sources", "--json"]) == 0
    assert all(finding["level"] != "error" for finding in json.loads(capsys.readouterr().out))


def test_a_lint_fails_on_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("StrategyCard:\n  id: X-001\n  module: tp\n  intent: x\n  policies:\n  - {id: a, when: layout.tpp > 1}\n")
    assert main(["cards", "lint", str(tmp_path)]) == 1
    assert f"{bad}:6:" in capsys.readouterr().out
    assert main(["cards", "lint", str(tmp_path), "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)
    assert {"error"} <= {finding["level"] for finding in findings}
    assert main(["cards", "lint", str(tmp_path / "none")]) != 0


def test_profiles_are_listed_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profiles", "--json"]) == 0
    known = json.loads(capsys.readouterr().out)
    assert "qwen2.5-32b" in known["models"]
    assert "native" in known["backends"]
    assert main(["profiles"]) == 0
    assert known["devices"][0] in capsys.readouterr().out


def test_explain_shows_decisions_and_why_not(plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["explain", str(plan_file)]) == 0
    text = capsys.readouterr().out
    assert "recompute = none" in text
    assert "micro_batch" in text
    assert main(["explain", str(plan_file), "--why-not", "micro_batch=3"]) == 0
    assert "Illegal: " in capsys.readouterr().out
    assert main(["explain", str(plan_file), "--why-not", "recompute=always"]) == 2
    assert "--why-not recompute=always" in capsys.readouterr().err
