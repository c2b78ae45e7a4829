"""Entries of a source as a format reads them; unread entries are reported."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from strategist.contract.diagnostic import Diagnostic
from strategist.formats.finding_codes import finding
from strategist.formats.source import Entry, Source

Value = TypeVar("Value")
UNSAID = (None, "auto", "None", "null", "")
"""Values by which a file leaves something to the program."""

OFF: tuple[Any, ...] = (None, False, "false", "False", 0, "0", "none", [])
"""Values of an entry that changes nothing."""


class Entries:
    """The entries of one source. Each question names one entry or several, of which the first that is there counts; an answer of
    None means that the file does not say. So does a value with a variable of a shell that only a run knows: ``open`` holds those
    that were asked for, by name."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.open: dict[str, str] = {}
        self._taken: set[str] = set()

    def get(self, *names: str) -> Any:
        """The value as it stands."""
        self._taken.update(names)
        for name in names:
            value = self.source.entries[name].value if name in self.source.entries else None
            if isinstance(value, str) and "$" in value and self.source.language in ("command", "yaml"):
                self.open[name] = value
            elif not (isinstance(value, str | None) and value in UNSAID):
                return value
        return None

    def whole(self, *names: str, least: int = 1) -> int | None:
        """A whole number.

        Raises:
            FileError: the value is none, or less than ``least``.
        """
        value = self._one(*names)
        if value is None:
            return None
        number = _whole(value)
        if number is None or number < least:
            raise self.source.error(
                self.named(*names), f"{self.named(*names)} is {value!r}: a whole number from {least} on is needed"
            )
        return number

    def real(self, *names: str) -> float | None:
        """A number.

        Raises:
            FileError: the value is none.
        """
        value = self._one(*names)
        try:
            return None if value is None else float(value)
        except (TypeError, ValueError, OverflowError):
            raise self.source.error(self.named(*names), f"{self.named(*names)} is {value!r}: a number is needed") from None

    def flag(self, *names: str) -> bool | None:
        """True or false.

        Raises:
            FileError: the value is neither.
        """
        value = self._one(*names)
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if value is not None and not isinstance(value, bool):
            raise self.source.error(self.named(*names), f"{self.named(*names)} is {value!r}: true or false is needed")
        return value

    def on(self, *names: str) -> bool:
        """Whether an entry is there and not off; a flag needs no value."""
        return self.get(*names) not in OFF

    def word(self, words: Mapping[str, Value], *names: str) -> Value | None:
        """What the word at a name stands for.

        Raises:
            FileError: the value is no such word.
        """
        value = self._one(*names)
        if value is None:
            return None
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if text not in words:
            known = ", ".join(filter(None, words))
            raise self.source.error(self.named(*names), f"{self.named(*names)} is {text}: one of {known} is needed")
        return words[text]

    def _one(self, *names: str) -> Any:
        """The value; the first word of a flag's, after which others may stand that are none of its."""
        value = self.get(*names)
        return value.split()[0] if isinstance(value, str) and value.strip() and self.source.language == "command" else value

    def named(self, *names: str) -> str:
        """The name that counts of several: the first that is there."""
        return next((name for name in names if name in self.source.entries), names[0])

    def has(self, *names: str) -> bool:
        """Whether there is an entry of each name, or below it."""
        return self.source.has(*names)

    def told(self) -> Iterator[Diagnostic]:
        """Values that only a run knows."""
        for name, value in self.open.items():
            text = f"{name} is {value}, which only a run knows: what the program takes by itself is assumed"
            yield finding("FMT-011", text, "write the value, or give it as an option", self.source, name)

    def left(self) -> Iterator[Entry]:
        """Entries that nothing asked for."""
        return (entry for name, entry in self.source.entries.items() if name not in self._taken)


def _whole(value: Any) -> int | None:
    if isinstance(value, str):
        try:
            value = float(value) if not value.lstrip("+-").isdigit() else int(value)
        except ValueError:
            return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
