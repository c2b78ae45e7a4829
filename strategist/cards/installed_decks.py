"""Decks by name: a folder, or a deck that an installed package ships through the entry points of ``strategist.cards``.

An entry names the package whose folder holds the YAML files::

    [project.entry-points."strategist.cards"]
    acme = "acme_cards.deck"

Packages are searched only for a name that is no folder. So no unnamed deck acts on a plan, and a plan without such a
name does not pay for the search. Nothing of the package is run: its folder is found, and its YAML is read.
"""

import os
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from strategist.errors import InputError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "strategist.cards"


def deck_folder(name: str | Path) -> Path:
    """The folder of cards that is meant.

    Raises:
        InputError: it is neither a folder nor an installed deck, or two packages ship a deck of that name.
    """
    folder = Path(name)
    if folder.is_dir() or os.sep in str(name) or folder.exists():
        return folder
    found, unread = _entries()
    decks = sorted({entry.name for entry in found})
    places = {place for entry in found if entry.name == str(name) and (place := _place(entry))}
    if len(places) == 1:
        return places.pop()
    if places:
        raise InputError(f"--cards {name}", f"is a deck in {' and in '.join(sorted(map(str, places)))}", "name one of the folders")
    known = f"installed decks are {', '.join(decks)}" if decks else "name a folder; no deck is installed"
    if unread:
        known += f"; what {', '.join(unread)} ships cannot be read, install it again"
    raise InputError(f"--cards {name}", "is neither a folder nor the deck of an installed package", known)


def _entries() -> tuple[Collection["EntryPoint"], tuple[str, ...]]:
    """The decks of all installed packages, and those packages whose entry points cannot be read; others are still loaded."""
    from importlib.metadata import distributions, entry_points  # as long to import as a plan takes to price

    try:
        return entry_points(group=GROUP), ()
    except Exception:  # any error in a file of another package
        found: list[EntryPoint] = []
        unread: list[str] = []
    for one in distributions():
        try:
            found += one.entry_points.select(group=GROUP)
        except Exception:  # any error in a file of another package
            unread.append(one.name)
    return found, tuple(dict.fromkeys(unread))


def _place(entry: "EntryPoint") -> Path | None:
    """The folder of the package that the entry names; only the outermost package is searched for, so no code of it runs."""
    top, *inner = entry.value.partition(":")[0].strip().split(".")
    spec = find_spec(top) if top else None  # not every finder on the way takes an empty name
    folders = (Path(place, *inner) for place in (spec.submodule_search_locations or () if spec else ()))
    return next((folder for folder in folders if folder.is_dir()), None)
