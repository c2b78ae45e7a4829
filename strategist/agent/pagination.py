"""Pagination: splits a tool's answer into pages that fit a model's context."""

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from strategist.agent.problem import RefusedError
from strategist.frozen import frozen

PAGE_TOKENS = 1_900
"""Maximum size of a page, by an estimate that exceeds the count of most tokenizers."""

MAX_SHEETS = 64
"""Maximum number of answers that a session keeps for later pages."""

MAX_BYTES = 8 * 2**20
"""Maximum size of an answer."""

MAX_CHARACTERS = 1_200
"""Maximum length of one text; longer ones are truncated with a mark."""

_TOKENS = re.compile(r"[A-Za-z]{1,4}|[0-9]{1,3}|[^A-Za-z0-9\s]|\n")


Head = TypeVar("Head")
Item = TypeVar("Item")
Answer = tuple[dict[str, Any], list[Any]]
"""An answer as JSON data: its head and its items."""


@frozen
class PagedAnswer(Generic[Head, Item]):
    """Answer of a tool: a head, which comes with the first page, and items, which are spread over pages. All are frozen
    dataclasses; without items their type is Never.
    """

    head: Head
    items: tuple[Item, ...] = ()


@frozen
class StartedJob:
    """A call that became a job, since it took longer than wait_seconds. job_status waits for its end, cancel_job ends it."""

    job: str
    tool: str
    progress: str
    seconds: float


def tokens(text: str) -> int:
    """Upper estimate of a text's tokens: four letters, three digits or one other character each."""
    return len(_TOKENS.findall(text))


def dumps(data: Any) -> str:
    """JSON text as it is sent."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


class Pages:
    """Answers of one session, by page. A handle names an answer and the first item of its next page.

    stored_answer: returns an answer that is not of this session by its name (answers of jobs outlive sessions), or None.
    """

    def __init__(self, stored_answer: Callable[[str], Answer | None] = lambda name: None) -> None:
        self._answers: OrderedDict[str, Answer] = OrderedDict()
        self._stored_answer = stored_answer

    def first(self, answer: Answer) -> dict[str, Any]:
        """The head with as many items as fit."""
        head, items = _shortened(answer[0]), [_shortened(item) for item in answer[1]]
        key = hashlib.sha256(dumps([head, items]).encode("utf-8", "replace")).hexdigest()[:10]
        self._answers[key] = (head, items)
        self._answers.move_to_end(key)
        while len(self._answers) > MAX_SHEETS:
            self._answers.popitem(last=False)
        return self._page(key, 0)

    def more(self, handle: str) -> dict[str, Any]:
        """The page that a handle names.

        Raises:
            RefusedError: the handle is unknown.
        """
        key, _, start = handle.rpartition("-")
        if key not in self._answers and start == "0" and (answer := self._stored_answer(key)) is not None:
            return self.first(answer)
        if key not in self._answers or not start.isdigit() or not 0 < int(start) < len(self._answers[key][1]):
            raise RefusedError("unknown_handle", f"handle {handle} is unknown in this session", "repeat the call that gave it")
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
    if isinstance(data, str) and len(data) > MAX_CHARACTERS:
        return f"{data[:MAX_CHARACTERS]} ... ({len(data) - MAX_CHARACTERS} characters more)"
    return data
