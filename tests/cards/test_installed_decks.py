"""Decks of installed packages: found by name, never run, and looked up only when named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hostile.plugins import install

from strategist.cards.installed_decks import deck_folder
from strategist.errors import InputError


def test_a_deck_name_resolves_to_the_packages_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deck = install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert deck_folder("acme") == deck


def test_a_folder_precedes_an_installed_deck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "acme").mkdir()
    assert deck_folder("acme") == Path("acme")
    assert deck_folder("some/where") == Path("some/where")


def test_an_unknown_deck_is_refused_with_the_installed_decks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match=r"--cards acne: is neither .*; installed decks are .*acme"):
        deck_folder("acne")


def test_a_deck_name_of_two_packages_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path)
    install(tmp_path, "other_cards", "acme = other_cards.deck")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match=r"is a deck in .*acme_cards.* and in .*other_cards"):
        deck_folder("acme")


@pytest.mark.parametrize("entry", ["acme = nowhere_at_all.deck", "acme = acme_cards.other"])
def test_an_entry_point_without_a_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str) -> None:
    install(tmp_path, entry=entry)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match="is neither a folder nor"):
        deck_folder("acme")


def plan(site: Path, *arguments: str) -> str:
    """Plans in a new process; checks that packages are looked up only with --cards."""
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


def test_an_installed_deck_acts_only_on_plans_that_name_the_deck(tmp_path: Path) -> None:
    deck = install(tmp_path)
    assert "ACME-001" not in plan(tmp_path)
    named = plan(tmp_path, "--cards", "acme")
    assert f"ACME-001 comes from {deck / 'ACME-001.yaml'}" in named
    assert '"recompute": "none"' not in named
