"""A package that ships a deck is read but never run; its faults are reported in one line."""

from collections.abc import Callable
from pathlib import Path

import pytest
from chaos import Chaos

from hostile import plugins
from strategist.cli.main import main

PLAN = (
    "plan", "--model", "tiny", "--gpus", "4xcpu", "--seq-len", "128", "--global-batch", "16", "--json",
    "--fix", "dp_shard=4", "--fix", "micro_batch=1",
)  # fmt: skip
LIST = ("cards", "list")
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command with a deck of installed packages; returns exit code, output and errors."""

    def command(site: Path, deck: str, words: tuple[str, ...]) -> tuple[int, str, str]:
        with monkeypatch.context() as there:
            there.syspath_prepend(str(site))
            there.chdir(site)
            code = main([*words, "--cards", deck])
        return code, *capsys.readouterr()

    return command


@pytest.mark.chaos("Bad input", "code of packages that ship a deck never runs")
def test_code_of_a_deck_package_never_runs(chaos: Chaos, tmp_path: Path, run_command: Command) -> None:
    """Harmless packages come first, so those that would end the tests are not reached if any code runs."""
    sites = {name: tmp_path / f"{number}" for number, name in enumerate(["is valid", *plugins.CODE])}
    plans = {}
    for name, site in sites.items():
        deck = plugins.install(site, code=plugins.CODE.get(name, ""))
        code, plan, errors = run_command(site, "acme", PLAN)
        assert not (site / "ran").exists(), name
        assert (code, errors) == (0, ""), name
        plans[name] = plan.replace(str(deck), "DECK")
    assert "ACME-001 comes from DECK" in plans["is valid"]
    assert set(plans.values()) == {plans["is valid"]}
    chaos.found(f"{len(plugins.CODE)} of {len(plugins.CODE)} packages ({', '.join(plugins.CODE)}) give the plan of a valid package")


@pytest.mark.chaos("Bad input", "a fault of a package's deck is one line that names the deck, and other decks work")
def test_a_faulty_deck_prints_one_error_line_and_others_work(chaos: Chaos, tmp_path: Path, run_command: Command) -> None:
    for number, (name, make) in enumerate(plugins.DATA.items()):
        site = tmp_path / f"{number}"
        plugins.install(site)
        make(site)
        code, out, errors = run_command(site, "bad", PLAN)
        assert (code, out, errors.count("\n")) == (2, "", 1), (name, errors)
        assert errors.startswith("strategist: "), name
        assert "bad" in errors, name
        code, out, errors = run_command(site, "acme", LIST)
        assert (code, errors) == (0, ""), (name, errors)
        assert "ACME-001" in out, name
    chaos.found(f"{len(plugins.DATA)} of {len(plugins.DATA)} ({', '.join(plugins.DATA)}) end with one line")
    chaos.found("a valid deck next to each works")
