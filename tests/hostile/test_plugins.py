"""A package that ships a deck is read and never run: whatever it does is not done, and what is wrong with it is one line."""

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
def called(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """A command with the deck of that name, where these packages are installed: its exit code, and what it says."""

    def command(site: Path, deck: str, words: tuple[str, ...]) -> tuple[int, str, str]:
        with monkeypatch.context() as there:
            there.syspath_prepend(str(site))
            there.chdir(site)
            code = main([*words, "--cards", deck])
        return code, *capsys.readouterr()

    return command


@pytest.mark.chaos("Bad input", "code of packages that ship a deck never runs: what it would do is not done")
def test_code_of_a_package_does_nothing(chaos: Chaos, tmp_path: Path, called: Command) -> None:
    """The harmless ones come first: those that would end these tests are not reached where anything runs."""
    sites = {name: tmp_path / f"{number}" for number, name in enumerate(["is sound", *plugins.CODE])}
    plans = {}
    for name, site in sites.items():
        deck = plugins.install(site, code=plugins.CODE.get(name, ""))
        code, plan, said = called(site, "acme", PLAN)
        assert not (site / "ran").exists(), name
        assert (code, said) == (0, ""), name
        plans[name] = plan.replace(str(deck), "DECK")
    assert "ACME-001 comes from DECK" in plans["is sound"]
    assert set(plans.values()) == {plans["is sound"]}
    chaos.found(f"{len(plugins.CODE)} of {len(plugins.CODE)} packages ({', '.join(plugins.CODE)}) give the plan of a sound one")


@pytest.mark.chaos("Bad input", "what is wrong with a deck of a package is one line that names it, and other decks go on")
def test_a_deck_that_is_wrong_is_one_line_and_others_go_on(chaos: Chaos, tmp_path: Path, called: Command) -> None:
    for number, (name, make) in enumerate(plugins.DATA.items()):
        site = tmp_path / f"{number}"
        plugins.install(site)
        make(site)
        code, out, said = called(site, "bad", PLAN)
        assert (code, out, said.count("\n")) == (2, "", 1), (name, said)
        assert said.startswith("strategist: "), name
        assert "bad" in said, name
        code, out, said = called(site, "acme", LIST)
        assert (code, said) == (0, ""), (name, said)
        assert "ACME-001" in out, name
    chaos.found(f"{len(plugins.DATA)} of {len(plugins.DATA)} ({', '.join(plugins.DATA)}) end with one line")
    chaos.found("a sound deck beside each goes on")
