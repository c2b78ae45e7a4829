"""Installed packages that ship a deck, and have hostile code or faulty data."""

import os
from collections.abc import Callable
from pathlib import Path

CARD = """\
protocol: 1
StrategyCard:
  id: ACME-001
  module: recompute
  intent: Always from scratch.
  policies:
    - {id: always, require: {recompute: full}, because: Our racks are small.}
"""
CODE: dict[str, str] = {
    "raises": "raise RuntimeError('boo')",
    "raises a BaseException": "class Boo(BaseException): pass\nraise Boo",
    "hangs": "while True: pass",
    "exits": "import sys\nsys.exit(0)",
    "ends the process": "import os\nos._exit(0)",
    "prints": "print('boo')\nimport sys\nsys.stderr.write('boo')",
    "forks": "import os\nos.fork()",
    "closes descriptors": "import os\nos.closerange(0, 64)",
    "changes folder, environment and signals": "import os, signal\nos.chdir('/')\nos.environ.clear()\nsignal.alarm(1)",
    "leaves threads": "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()",
    "lacks a module": "import nowhere_at_all",
    "is not a Python": "def (",
    "takes all memory": "all_ = [0] * 10**11",
}
"""Code that the package of a valid deck runs when imported."""


def install(
    site: Path, name: str = "acme_cards", entry: str = "acme = acme_cards.deck", code: str = CODE["raises"], card: str = CARD
) -> Path:
    """Writes a package with a deck and entry points, like an installer; returns the deck's folder."""
    deck = site / name / "deck"
    deck.mkdir(parents=True)
    canary = f"open({str(site / 'ran')!r}, 'w').close()\n"
    for folder in (deck.parent, deck):
        (folder / "__init__.py").write_text(canary + code, encoding="utf-8")
    (deck / "ACME-001.yaml").write_text(card, encoding="utf-8")
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[strategist.cards]\n{entry}\n", encoding="utf-8")
    return deck


def _entry(entry: str) -> Callable[[Path], None]:
    return lambda site: void(install(site, "bad_cards", entry))


def _card(card: str) -> Callable[[Path], None]:
    return lambda site: void(install(site, "bad_cards", "bad = bad_cards.deck", card=card))


def void(_: object) -> None:
    """Discards a return value."""


def _clash(site: Path) -> None:
    install(site, "bad_cards", "bad = bad_cards.deck")
    install(site, "worse_cards", "bad = worse_cards.deck")


def _points(text: bytes) -> Callable[[Path], None]:
    def install_package(site: Path) -> None:
        install(site, "bad_cards", "bad = bad_cards.deck")
        (site / "bad_cards-1.0.dist-info" / "entry_points.txt").write_bytes(text)

    return install_package


def _file(make: Callable[[Path], None]) -> Callable[[Path], None]:
    def install_package(site: Path) -> None:
        deck = install(site, "bad_cards", "bad = bad_cards.deck")
        (deck / "ACME-001.yaml").unlink()
        make(deck / "ACME-001.yaml")

    return install_package


def _nothing_named(site: Path) -> None:
    install(site, "bad_cards", "bad = bad_cards.deck")
    (site / "bad_cards-1.0.dist-info" / "METADATA").unlink()
    (site / "bad_cards" / "deck" / "ACME-001.yaml").unlink()


DATA: dict[str, Callable[[Path], None]] = {
    "names a package that is not there": _entry("bad = nowhere_at_all.deck"),
    "names a folder that is not there": _entry("bad = bad_cards.other"),
    "names nothing": _entry("bad ="),
    "names what is not a name": _entry("bad = ../../etc"),
    "names a module of Python's": _entry("bad = os"),
    "has entry points without a section": _points(b"bad = bad_cards.deck\n"),
    "has entry points that are no text": _points(b"[strategist.cards]\nbad\xff = \xfe\n"),
    "has the name of another": _clash,
    "has no card": _nothing_named,
    "is of a later protocol": _card(CARD.replace("protocol: 1", "protocol: 99")),
    "holds no number": _card(CARD.replace("require: {recompute: full}", "when: 'layout.tp > NaN', require: {recompute: full}")),
    "holds another type": _card("- a\n- list\n"),
    "holds an unknown setting": _card(CARD.replace("recompute: full", "recomputed: full")),
    "holds what is not text": _file(lambda path: void(path.write_bytes(b"\xff\xfe\x00"))),
    "holds a file without an end": _file(lambda path: path.symlink_to("/dev/zero")),
    "holds a pipe without a writer": _file(lambda path: os.mkfifo(path)),
    "holds a folder inside of itself": _file(lambda path: path.parent.joinpath("again").symlink_to(path.parent)),
}
"""Faults of a deck or its distribution."""
