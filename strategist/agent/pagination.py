"""Pagination: splits a tool's answer into pages small enough for a model's context."""

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from strategist.agent.problem import RefusedError

PAGE_TOKENS = 1_900
"""Of a page, by a count that is no tokenizer's and above most of them."""

MOST_SHEETS = 64
"""Sheets that a session keeps for their later pages."""

MOST_BYTES = 8 * 2**20
"""Of an answer."""

MOST_CHARACTERS = 1_200
"""Of one text: longer ones are cut, and say so."""

_TOKENS = re.compile(r"[A-Za-z]{1,4}|[0-9]{1,3}|[^A-Za-z0-9\s]|\n")


Head = TypeVar("Head")
Item = TypeVar("Item")
Answer = tuple[dict[str, Any], list[Any]]
"""A sheet as JSON data: its head and its items."""


@dataclass(frozen=True, kw_only=True)
class PagedAnswer(Generic[Head, Item]):
    """The answer of a tool: a head, which comes with the first page, and items, of which each page has some. All are values of
    frozen dataclasses; the items of a tool that has none are of type Never."""

    head: Head
    items: tuple[Item, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StartedJob:
    """A call that became a job: job_status waits for it, cancel_job ends it."""

    job: str
    tool: str
    progress: str
    seconds: float


def tokens(text: str) -> int:
    """How many tokens a text has at most: four letters, three digits or one other sign each."""
    return len(_TOKENS.findall(text))


def dumps(data: Any) -> str:
    """As it is sent."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


class Pages:
    """The answers of one session, by page. A handle names an answer and the item at which its next page begins.

    kept: returns the answer of a name that is none of this session's, or None: those of jobs, which outlive sessions.
    """

    def __init__(self, kept: Callable[[str], Answer | None] = lambda name: None) -> None:
        self._answers: OrderedDict[str, Answer] = OrderedDict()
        self._kept = kept

    def first(self, answer: Answer) -> dict[str, Any]:
        """The head with as many items as find room."""
        head, items = _shortened(answer[0]), [_shortened(item) for item in answer[1]]
        key = hashlib.sha256(dumps([head, items]).encode("utf-8", "replace")).hexdigest()[:10]
        self._answers[key] = (head, items)
        self._answers.move_to_end(key)
        while len(self._answers) > MOST_SHEETS:
            self._answers.popitem(last=False)
        return self._page(key, 0)

    def more(self, handle: str) -> dict[str, Any]:
        """The page that a handle names.

        Raises:
            RefusedError: nothing has that handle.
        """
        key, _, start = handle.rpartition("-")
        if key not in self._answers and start == "0" and (answer := self._kept(key)) is not None:
            return self.first(answer)
        if key not in self._answers or not start.isdigit() or not 0 < int(start) < len(self._answers[key][1]):
            raise RefusedError("unknown_handle", f"handle {handle} names no page of this session", "make the first call again")
        return self._page(key, int(start))

    def _page(self, key: str, start: int) -> dict[str, Any]:
        head, items = self._answers[key]
        head = {} if start else head
        tokens_left, end = PAGE_TOKENS - tokens(dumps(head)), start
        while end < len(items) and (end == start or tokens_left > 0):
            tokens_left -= tokens(dumps(items[end]))
            end += tokens_left >= 0 or end == start
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
