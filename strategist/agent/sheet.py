"""Sheets: what tools answer, and the pages on which it comes, each small enough for a context."""

import hashlib
import json
import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from strategist.agent.problem import RefusedError
from strategist.contract import codec

PAGE_TOKENS = 1_900
"""Of a page, by a count that is no tokenizer's and above most of them."""

MOST_SHEETS = 64
"""Sheets that a session keeps for their later pages."""

MOST_CHARACTERS = 1_200
"""Of one text: longer ones are cut, and say so."""

_TOKENS = re.compile(r"[A-Za-z]{1,4}|[0-9]{1,3}|[^A-Za-z0-9\s]|\n")


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A head, which comes with the first page, and items, of which each page brings some. All are values of frozen dataclasses."""

    head: Any
    items: tuple[Any, ...] = ()


def tokens(text: str) -> int:
    """How many tokens a text has at most: four letters, three digits or one other sign each."""
    return len(_TOKENS.findall(text))


def dumps(data: Any) -> str:
    """As it is sent."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


class Pages:
    """The sheets of one session. A handle names a sheet and the item at which its next page begins."""

    def __init__(self) -> None:
        self._sheets: OrderedDict[str, list[Any]] = OrderedDict()

    def first(self, sheet: Sheet) -> dict[str, Any]:
        """The head with as many items as find room."""
        head, items = _shortened(codec.encode(sheet.head)), [_shortened(codec.encode(item)) for item in sheet.items]
        key = hashlib.sha256(dumps([head, items]).encode()).hexdigest()[:10]
        self._sheets[key] = items
        self._sheets.move_to_end(key)
        while len(self._sheets) > MOST_SHEETS:
            self._sheets.popitem(last=False)
        return self._page(head, key, 0)

    def more(self, handle: str) -> dict[str, Any]:
        """The page that a handle names.

        Raises:
            RefusedError: nothing has that handle.
        """
        key, _, start = handle.partition("-")
        if key not in self._sheets or not start.isdigit() or not 0 < int(start) < len(self._sheets[key]):
            raise RefusedError("unknown_handle", f"handle {handle} names no page of this session", "make the first call again")
        return self._page({}, key, int(start))

    def _page(self, head: dict[str, Any], key: str, start: int) -> dict[str, Any]:
        items = self._sheets[key]
        room, end = PAGE_TOKENS - tokens(dumps(head)), start
        while end < len(items) and (end == start or room > 0):
            room -= tokens(dumps(items[end]))
            end += room >= 0 or end == start
        page = {**head, "items": items[start:end]}
        return page if end == len(items) else {**page, "left": len(items) - end, "handle": f"{key}-{end}"}


def _shortened(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _shortened(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_shortened(value) for value in data]
    if isinstance(data, str) and len(data) > MOST_CHARACTERS:
        return f"{data[:MOST_CHARACTERS]} ... ({len(data) - MOST_CHARACTERS} characters more)"
    return data
