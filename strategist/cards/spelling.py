"""Spelling corrections, made only where exactly one known word is similar."""

import re
from collections.abc import Iterable

from strategist.contract.diagnostic import Fix
from strategist.files.yaml_file import Document, KeyPath

MAX_EDITS = 2


def edit_distance(left: str, right: str) -> int:
    """Number of letters to insert, delete, replace or swap with their neighbour (optimal string alignment distance)."""
    previous_row: list[int] = []
    row = list(range(len(right) + 1))
    for i, letter in enumerate(left, 1):
        row_before_previous, previous_row, row = previous_row, row, [i]
        for j, other in enumerate(right, 1):
            cost = min(previous_row[j] + 1, row[j - 1] + 1, previous_row[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == right[j - 2] and left[i - 2] == other:
                cost = min(cost, row_before_previous[j - 2] + 1)
            row.append(cost)
    return row[-1]


def closest_word(word: str, known: Iterable[str]) -> str:
    """The only known word within two edits; empty where there is none or more than one. Short words allow fewer edits."""
    max_edits = min(MAX_EDITS, (len(word) - 1) // 2)
    close_words = {other for other in known if abs(len(other) - len(word)) <= max_edits and edit_distance(word, other) <= max_edits}
    return close_words.pop() if len(close_words) == 1 else ""


def spelling_fix(document: Document, key_path: KeyPath, word: str, known: Iterable[str], *, key: bool = False) -> Fix | None:
    """Fix that replaces a misspelt word in the value or the key at ``key_path`` by the closest known word; None without one."""
    correction = closest_word(word, known) if word else ""
    if not correction:
        return None
    start, end = document.span(key_path, key=key)
    found = re.search(rf"(?<![\w.]){re.escape(word)}(?![\w.])", document.text[start:end])
    if found is None:
        return None
    return Fix(path=document.path, start=start + found.start(), end=start + found.end(), replacement=correction)
