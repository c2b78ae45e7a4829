"""The table of formats in docs/formats.md, generated from the tests."""

import ast
import re
from pathlib import Path

from docs.parts import with_parts

from formats.frameworks import HERE
from formats.plans import plans
from strategist.formats.catalog import find_format, formats, readable_formats

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"


def matrix() -> str:
    """One row per format: the suite of all formats writes, reads and checks those that are written; tests of a format that is only
    read hold it to files of its system."""
    rows = ["| format | export | import | check | plans | validated by |", "|---|---|---|---|---:|---|"]
    for name in formats():
        chosen = find_format(name)
        rows.append(f"| [{name}](#{name}) {chosen.title} | yes | yes | yes | {len(plans(name))} | {_validated(name)} |")
    for name in readable_formats():
        if (chosen := find_format(name)).write is None:
            rows.append(f"| [{name}](#{name}) {chosen.title} | no | yes | yes | | {_own(name.replace('-', '_'))} |")
    return "\n".join(rows)


def _validated(name: str) -> str:
    """What exports are validated by: the docstring of the framework's reader, with the installed version."""
    module = name.replace("-", "_")
    reader, pins = HERE / f"{module}.py", HERE / f"{module}.txt"
    if not reader.exists():
        return _own(module)
    pinned = re.search(r"^[\w-]+==[\w.]+$", pins.read_text(encoding="utf-8"), re.MULTILINE) if pins.exists() else None
    return _first_sentence(reader) + (f" ({pinned[0]})" if pinned else "")


def _own(module: str) -> str:
    """The validation that the format's own tests describe."""
    return _first_sentence(Path(__file__).with_name(f"test_{module}.py"))


def _first_sentence(path: Path) -> str:
    """The first line of a file's docstring, up to a colon."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.splitlines()[0].partition(": ")[0].rstrip(".")


def page(text: str) -> str:
    """The page with the current table."""
    return with_parts(text, {"matrix": matrix()})
