"""A package that ships a deck is read and never run: whatever it does is not done, and what is wrong with it is one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from chaos import Chaos

from hostile import plugins

PLAN = ("plan", "--model", "tiny", "--gpus", "4xcpu", "--seq-len", "128", "--global-batch", "16", "--json")


def planned(site: Path, deck: str) -> subprocess.CompletedProcess[str]:
    """A plan with the deck of that name, where these packages are installed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))}
    command = [sys.executable, "-m", "strategist.cli.main", *PLAN, "--cards", deck]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=site, check=False)


@pytest.mark.chaos("Bad input", "code of packages that ship a deck never runs: what it would do is not done")
def test_code_of_a_package_does_nothing(chaos: Chaos, tmp_path: Path) -> None:
    sites = {name: tmp_path / f"{number}" for number, name in enumerate(["is sound", *plugins.CODE])}
    plans = {}
    for name, site in sites.items():
        deck = plugins.install(site, code=plugins.CODE.get(name, ""))
        done = planned(site, "acme")
        assert (done.returncode, done.stderr) == (0, ""), name
        assert not (site / "ran").exists(), name
        plans[name] = done.stdout.replace(str(deck), "DECK")
    assert "ACME-001 comes from DECK" in plans["is sound"]
    assert set(plans.values()) == {plans["is sound"]}
    chaos.found(f"{len(plugins.CODE)} of {len(plugins.CODE)} packages ({', '.join(plugins.CODE)}) give the plan of a sound one")


@pytest.mark.chaos("Bad input", "what is wrong with a deck of a package is one line that names it, and other decks go on")
def test_a_deck_that_is_wrong_is_one_line_and_others_go_on(chaos: Chaos, tmp_path: Path) -> None:
    for number, (name, make) in enumerate(plugins.DATA.items()):
        site = tmp_path / f"{number}"
        plugins.install(site)
        make(site)
        bad, good = planned(site, "bad"), planned(site, "acme")
        assert (bad.returncode, bad.stdout, bad.stderr.count("\n")) == (2, "", 1), (name, bad.stderr)
        assert bad.stderr.startswith("strategist: "), name
        assert "bad" in bad.stderr, name
        assert (good.returncode, good.stderr) == (0, ""), (name, good.stderr)
    chaos.found(f"{len(plugins.DATA)} of {len(plugins.DATA)} ({', '.join(plugins.DATA)}) end with one line")
    chaos.found("a sound deck beside each goes on")
