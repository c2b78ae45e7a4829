"""Script variables: entries of a script whose values may come from its environment."""

from collections.abc import Mapping
from typing import Any

from strategist.formats.config_entries import Entries, Value


class Flags:
    """Entries as :class:`Entries` answers them, of flags of which some have no value."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries

    def get(self, *names: str) -> Any:
        """The value as it stands; None where nothing says it."""
        return self._entries.get(*names)

    def whole(self, *names: str, least: int = 1) -> int | None:
        """A whole number.

        Raises:
            FileError: the value is none, or less than ``least``.
        """
        value = self.get(*names)
        first = value.split()[0] if isinstance(value, str) and value.split() else ""
        if first.isdigit() and int(first) >= least:
            return int(first)  # of torchrun's flags the last is followed by the program
        return None if value is None else self._entries.whole(*names, least=least)

    def real(self, *names: str) -> float | None:
        """A number.

        Raises:
            FileError: the value is none.
        """
        return None if self.get(*names) is None else self._entries.real(*names)

    def word(self, words: Mapping[str, Value], *names: str) -> Value | None:
        """What the word at a name stands for.

        Raises:
            FileError: the value is no such word.
        """
        return None if self.get(*names) is None else self._entries.word(words, *names)

    def on(self, *names: str) -> bool:
        """Whether a flag without a value is there; YAML may say false."""
        return self.get(*names) not in (None, False, "false", "False")
