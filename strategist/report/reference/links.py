"""Links between pages of the reference, relative to a page's folder."""

import re

from strategist.expr.vocabulary import SETTINGS, VOCABULARY, setting
from strategist.report.reference.markdown import code


def file_name(identity: str) -> str:
    """File name of the page of a card or flow, for any characters in its id."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", identity) + ".md"


def card_link(card_id: str, known: frozenset[str]) -> str:
    """Link to the page of a card; its id alone if there is no page."""
    return f"[{card_id}](../cards/{file_name(card_id)})" if card_id in known else card_id


def name_link(name: str, parent: str = "../") -> str:
    """Link to the explanation of a vocabulary name or setting. ``parent`` is the relative path to the reference's folder."""
    full = known_setting.name if (known_setting := setting(name)) else name
    if full not in VOCABULARY:
        return code(name)
    part, _, bare = full.partition(".")
    target = f"settings/{part}.md#{bare}" if full in SETTINGS else f"vocabulary.md#{part}"
    return f"[{code(full)}]({parent}{target})"
