"""Decks of installed packages: found by name, never run, and only looked for where somebody names one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hostile.plugins import install

from strategist.cards.installed_decks import deck_folder
from strategist.errors import InputError


def test_a_name_is_the_folder_that_a_package_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deck = install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert deck_folder("acme") == deck


def test_a_folder_comes_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "acme").mkdir()
    assert deck_folder("acme") == Path("acme")
    assert deck_folder("some/where") == Path("some/where")


def test_what_is_neither_is_said_with_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match=r"--cards acne: is neither .*; installed decks are .*acme"):
        deck_folder("acne")


def test_a_name_that_two_packages_use_means_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path)
    install(tmp_path, "other_cards", "acme = other_cards.deck")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match=r"is a deck in .*acme_cards.* and in .*other_cards"):
        deck_folder("acme")


@pytest.mark.parametrize("entry", ["acme = nowhere_at_all.deck", "acme = acme_cards.other"])
def test_an_entry_without_its_folder_is_no_deck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str) -> None:
    install(tmp_path, entry=entry)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match="is neither a folder nor"):
        deck_folder("acme")


def plan(site: Path, *arguments: str) -> str:
    """The plan of a process of its own, and whether it looked for packages."""
    program = (
        "import sys; from strategist.cli.main import main; code = main(sys.argv[1:])\n"
        "print('importlib.metadata' in sys.modules, file=sys.stderr); sys.exit(code)"
    )
    request = ["plan", "--model", "tiny", "--gpus", "4xcpu", "--seq-len", "128", "--global-batch", "16", "--json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))}
    done = subprocess.run(
        [sys.executable, "-c", program, *request, *arguments], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stderr == f"{'--cards' in arguments}\n"
    return done.stdout


def test_an_installed_deck_acts_on_the_plan_that_names_it_and_on_no_other(tmp_path: Path) -> None:
    deck = install(tmp_path)
    assert "ACME-001" not in plan(tmp_path)
    named = plan(tmp_path, "--cards", "acme")
    assert f"ACME-001 comes from {deck / 'ACME-001.yaml'}" in named
    assert '"recompute": "none"' not in named
