"""Decks by name: a folder, or a deck of an installed package with an entry point in the group ``strategist.cards``.

The entry point names the package whose folder holds the YAML files::

    [project.entry-points."strategist.cards"]
    acme = "acme_cards.deck"

Packages are searched only for a name that is not a folder, so a deck that was not named never affects a plan, and plans without
such a name do not pay for the search. No code of the package runs: only its YAML files are read.
"""

import os
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from strategist.errors import InputError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINT_GROUP = "strategist.cards"


def deck_folder(name: str | Path) -> Path:
    """Folder of the named deck.

    Raises:
        InputError: it is neither a folder nor an installed deck, or two packages ship a deck of that name.
    """
    folder = Path(name)
    if folder.is_dir() or os.sep in str(name) or folder.exists():
        return folder
    found, unreadable = _entries()
    decks = sorted({entry.name for entry in found})
    folders = {package_folder for entry in found if entry.name == str(name) and (package_folder := _package_folder(entry))}
    if len(folders) == 1:
        return folders.pop()
    if folders:
        raise InputError(f"--cards {name}", f"is a deck in {' and in '.join(sorted(map(str, folders)))}", "name one of the folders")
    known = f"installed decks are {', '.join(decks)}" if decks else "name a folder; no deck is installed"
    if unreadable:
        known += f"; what {', '.join(unreadable)} ships cannot be read, install it again"
    raise InputError(f"--cards {name}", "is neither a folder nor the deck of an installed package", known)


def _entries() -> tuple[Collection["EntryPoint"], tuple[str, ...]]:
    """Entry points of decks in all installed packages, and names of the packages whose entry points cannot be read."""
    from importlib.metadata import distributions, entry_points  # slow to import: as long as pricing a plan

    try:
        return entry_points(group=ENTRY_POINT_GROUP), ()
    except Exception:  # any error in a file of another package
        found: list[EntryPoint] = []
        unreadable: list[str] = []
    for distribution in distributions():
        try:
            found += distribution.entry_points.select(group=ENTRY_POINT_GROUP)
        except Exception:  # any error in a file of another package
            unreadable.append(distribution.name)
    return found, tuple(dict.fromkeys(unreadable))


def _package_folder(entry: "EntryPoint") -> Path | None:
    """Folder of the package that the entry point names. Only the top-level package is looked up, so that none of its code runs."""
    package, *subpackages = entry.value.partition(":")[0].strip().split(".")
    spec = find_spec(package) if package else None  # some finders on sys.meta_path fail for an empty name
    folders = (Path(location, *subpackages) for location in (spec.submodule_search_locations or () if spec else ()))
    return next((folder for folder in folders if folder.is_dir()), None)
