"""Entries of a source as a format reads them; unread entries are reported."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from strategist.contract.diagnostic import Diagnostic
from strategist.formats.finding_codes import finding
from strategist.formats.source import Entry, Source

Value = TypeVar("Value")
UNSET_VALUES = (None, "auto", "None", "null", "")
"""Values with which a file leaves an entry to the program."""

TRUE, FALSE = ("true", "yes", "on", "t", "y", "1"), ("false", "no", "off", "f", "n", "0")
"""Words of a flag, as transformers' ``string_to_bool`` (hf_argparser.py) and YAML 1.1 read them."""

OFF: tuple[Any, ...] = (None, False, "false", "False", 0, "0", "none", [])
"""Values of an entry that changes nothing."""


class Entries:
    """Typed access to the entries of one source.

    Methods take one name or several; the first name with a value counts. None means that the file does not state it. A value
    with an unexpanded shell variable counts as not stated; ``open`` holds the ones that were read, by name.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.open: dict[str, str] = {}
        self._read: set[str] = set()

    def get(self, *names: str) -> Any:
        """The value as it is written."""
        self._read.update(names)
        for name in names:
            value = self.source.entries[name].value if name in self.source.entries else None
            if isinstance(value, str) and "$" in value and self.source.language in ("command", "yaml"):
                self.open[name] = value
            elif not (isinstance(value, str | None) and value in UNSET_VALUES):
                return value
        return None

    def integer(self, *names: str, minimum: int = 1) -> int | None:
        """A whole number.

        Raises:
            FileError: the value is not a whole number, or is less than ``minimum``.
        """
        value = self._first_word(*names)
        if value is None:
            return None
        number = _integer(value)
        if number is None or number < minimum:
            raise self.source.error(
                self.present_name(*names), f"{self.present_name(*names)} is {value!r}: a whole number from {minimum} on is needed"
            )
        return number

    def number(self, *names: str) -> float | None:
        """A number.

        Raises:
            FileError: the value is not a number.
        """
        value = self._first_word(*names)
        try:
            return None if value is None else float(value)
        except (TypeError, ValueError, OverflowError):
            raise self.source.error(
                self.present_name(*names), f"{self.present_name(*names)} is {value!r}: a number is needed"
            ) from None

    def flag(self, *names: str) -> bool | None:
        """True or false.

        Raises:
            FileError: the value is neither.
        """
        value = self._first_word(*names)
        word = str(value).lower() if isinstance(value, str | int) else ""
        if word in (*TRUE, *FALSE):
            return word in TRUE
        if value is not None and not isinstance(value, bool):
            raise self.source.error(self.present_name(*names), f"{self.present_name(*names)} is {value!r}: true or false is needed")
        return value

    def enabled(self, *names: str) -> bool:
        """Whether an entry is there and not off; a flag needs no value."""
        return self.get(*names) not in OFF

    def choice(self, choices: Mapping[str, Value], *names: str) -> Value | None:
        """The value that ``choices`` maps the entry's word to.

        Raises:
            FileError: ``choices`` does not have the word.
        """
        value = self._first_word(*names)
        if value is None:
            return None
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if text not in choices:
            known = ", ".join(filter(None, choices))
            raise self.source.error(self.present_name(*names), f"{self.present_name(*names)} is {text}: one of {known} is needed")
        return choices[text]

    def _first_word(self, *names: str) -> Any:
        """The value; on a command line its first word, because further words may be other arguments."""
        value = self.get(*names)
        return value.split()[0] if isinstance(value, str) and value.strip() and self.source.language == "command" else value

    def present_name(self, *names: str) -> str:
        """The first of the names that has an entry; the first name if none has."""
        return next((name for name in names if name in self.source.entries), names[0])

    def has(self, *names: str) -> bool:
        """Whether each name is an entry or has entries below it."""
        return self.source.has(*names)

    def open_findings(self) -> Iterator[Diagnostic]:
        """Findings on values that are known only at run time."""
        for name, value in self.open.items():
            text = f"{name} is {value}, which is known only where the file runs: the program's default is assumed"
            yield finding("FMT-011", text, "write the value, or give it as an option", self.source, name)

    def unread(self) -> Iterator[Entry]:
        """Entries that were not read."""
        return (entry for name, entry in self.source.entries.items() if name not in self._read)


def _integer(value: Any) -> int | None:
    if isinstance(value, str):
        try:
            value = float(value) if not value.lstrip("+-").isdigit() else int(value)
        except ValueError:
            return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
