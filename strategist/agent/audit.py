"""Audit log: a JSON line before and one after every call."""

import json
import os
import time
from pathlib import Path
from typing import Any

from strategist.errors import FileError

MAX_CHARACTERS = 4_000
"""Maximum length of logged arguments."""


class Audit:
    """An append-only log. A call does not run if it cannot be logged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._number = 0

    def begins(self, tool: str, arguments: Any) -> int:
        """Logs a call; returns its number.

        Raises:
            FileError: the log cannot be written.
        """
        self._number += 1
        encoded = json.dumps(arguments, ensure_ascii=True, sort_keys=True)
        self._write({"call": self._number, "tool": tool, "arguments": encoded[:MAX_CHARACTERS]})
        return self._number

    def ends(self, number: int, code: str) -> None:
        """Logs the end of a call: ok, the code of its problem, or the name of the job that it became."""
        self._write({"call": number, "ended": code})

    def _write(self, line: dict[str, Any]) -> None:
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "a", encoding="ascii") as file:
                file.write(json.dumps({"time": round(time.time(), 3), "process": os.getpid(), **line}) + "\n")
        except OSError as error:
            raise FileError(self.path, f"cannot be written: {error.strerror}") from None
