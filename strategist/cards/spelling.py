"""Spelling corrections, made only where exactly one known word is similar."""

import re
from collections.abc import Iterable

from strategist.contract.diagnostic import Fix
from strategist.files.yaml_file import Document, Place

MAX_EDITS = 2


def edit_distance(left: str, right: str) -> int:
    """Number of letters to insert, delete, replace or swap with their neighbour (optimal string alignment distance)."""
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, letter in enumerate(left, 1):
        last, before, row = before, row, [i]
        for j, other in enumerate(right, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == right[j - 2] and left[i - 2] == other:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]


def closest_word(word: str, known: Iterable[str]) -> str:
    """The only known word within two edits; empty where there is none or more than one. Short words allow fewer edits."""
    most = min(MAX_EDITS, (len(word) - 1) // 2)
    near = {other for other in known if abs(len(other) - len(word)) <= most and edit_distance(word, other) <= most}
    return near.pop() if len(near) == 1 else ""


def spelling_fix(document: Document, place: Place, wrong: str, known: Iterable[str], *, key: bool = False) -> Fix | None:
    """Fix that replaces a misspelt word in the value at ``place``, or in its key, by the closest known word; None without one."""
    right = closest_word(wrong, known) if wrong else ""
    if not right:
        return None
    start, end = document.span(place, key=key)
    found = re.search(rf"(?<![\w.]){re.escape(wrong)}(?![\w.])", document.text[start:end])
    if found is None:
        return None
    return Fix(path=document.path, start=start + found.start(), end=start + found.end(), replacement=right)
