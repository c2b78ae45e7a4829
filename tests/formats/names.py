"""Names that other frameworks accept, read from their packages: ``python -m formats.names NAME ...`` from tests/ rewrites
profiles/formats/names/NAME.txt from the installations of ``make frameworks``.
"""

import sys
from pathlib import Path

from formats.frameworks import parsed
from strategist.formats.config_reader import names

NAMES = Path(__file__).parents[2] / "profiles" / "formats" / "names"


def accepted(name: str) -> tuple[str, ...]:
    """The names that the installed package accepts."""
    return tuple(parsed(name.replace("-", "_"), ["names"]))


def listed(name: str) -> tuple[str, ...]:
    """The names in our list."""
    return names(name)


def write(name: str) -> None:
    """Rewrites the list from the packages."""
    module = name.replace("-", "_")
    packages = ", ".join((Path(__file__).parent / "frameworks" / f"{module}.txt").read_text(encoding="utf-8").split())
    head = f"# What {packages} accept; written by: cd tests && python -m formats.names {name}"
    (NAMES / f"{name}.txt").write_text("\n".join((head, *accepted(name))) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for each in sys.argv[1:]:
        write(each)
