"""The table of formats in docs/formats.md, from what the tests have."""

import ast
import re
from pathlib import Path

from docs.parts import with_parts

from formats.frameworks import HERE
from formats.plans import plans
from strategist.formats.catalog import find_format, formats

PAGE = Path(__file__).parents[2] / "docs" / "formats.md"


def matrix() -> str:
    """A row a format; every format is written, read and checked by the suite of all formats."""
    rows = ["| format | export | import | check | plans | validated by |", "|---|---|---|---|---:|---|"]
    for name in formats():
        chosen = find_format(name)
        rows.append(f"| [{name}](#{name}) {chosen.title} | yes | yes | yes | {len(plans(name))} | {_validated(name)} |")
    return "\n".join(rows)


def _validated(name: str) -> str:
    """What the tests hold its exports against: the versions that are installed, and what the reader of them says it is."""
    module = name.replace("-", "_")
    reader, pins = HERE / f"{module}.py", HERE / f"{module}.txt"
    if not reader.exists():
        return _own(module)
    pinned = re.search(r"^[\w-]+==[\w.]+$", pins.read_text(encoding="utf-8"), re.MULTILINE) if pins.exists() else None
    return _said(reader) + (f" ({pinned[0]})" if pinned else "")


def _own(module: str) -> str:
    """What the format's own tests say that they do."""
    return _said(Path(__file__).with_name(f"test_{module}.py"))


def _said(path: Path) -> str:
    """The head of a file's docstring, up to where it goes into detail."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.splitlines()[0].partition(": ")[0].rstrip(".")


def page(text: str) -> str:
    """The page with the table as it is now."""
    return with_parts(text, {"matrix": matrix()})
