"""``python -m docs`` writes all generated pages and parts of pages; ``python -m docs reference`` only docs/reference."""

import sys

from agent import page as agents
from executors import matrix as engines
from formats import matrix as formats

from docs import reference, screens
from docs.pages import ROOT

DOCS = ROOT / "docs"


def main(*, only_reference: bool) -> None:
    reference.write(DOCS / "reference")
    if only_reference:
        return
    screens.PAGE.write_text(screens.screens(), encoding="utf-8")
    for made in (formats, engines, agents):
        made.PAGE.write_text(made.page(made.PAGE.read_text(encoding="utf-8")), encoding="utf-8")


main(only_reference=sys.argv[1:] == ["reference"])
