"""Reader of the parts that cards and flows share: fields, texts, expressions and settings; keeps errors with their position."""

from collections.abc import Callable, Collection, Container, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from strategist.cards.card import Setting, Text
from strategist.cards.spelling import spelling_fix
from strategist.contract.diagnostic import Diagnostic, Level
from strategist.contract.knobs import KnobValue
from strategist.errors import FileError
from strategist.expr import check
from strategist.expr.check import Expression
from strategist.expr.parse import ExpressionError
from strategist.expr.vocabulary import INT, SETTINGS, Name, near_miss, same_choice, setting
from strategist.files.yaml_file import Document

UNREADABLE, FORM, NAME, CLASH, SYNTAX, DUPLICATE, SETTING, CONTROL = (f"CARD{number:03}" for number in range(1, 9))
UNIT, FIELD, BARE_NUMBER = "CARD017", "CARD018", "CARD027"
"""Codes of errors in the form of a file; all other codes belong to ``strategist.lint``."""

_KINDS = {"syntax": SYNTAX, "name": NAME, "type": CLASH, "unit": UNIT, "bare": BARE_NUMBER}

NEWEST = 1
"""Newest protocol of card files."""

KeyPath = tuple[str | int, ...]
R = TypeVar("R")
Inspected = tuple[R | None, tuple[Diagnostic, ...]]
"""A document's value without its invalid parts, None where there is none; and all errors in its form, from top to bottom."""


def valid(document: Document, inspected: Inspected[R]) -> R:
    """The value that was read.

    Raises:
        FileError: the document has errors; points at the first one.
    """
    value, findings = inspected
    if findings or value is None:
        first = findings[0]
        raise FileError(document.path, first.message, first.line, first.column)
    return value


class UnknownWord(NamedTuple):
    """A word that is not allowed in its place, with the allowed ones."""

    word: str
    known: Collection[str]


class Reading:
    """State of reading one document. Invalid parts are reported and left out, so that all errors are found at once.

    ``codes`` maps a card's codes to those of another kind of document.
    """

    codes: ClassVar[Mapping[str, str]] = {}

    def __init__(self, document: Document) -> None:
        self.document = document
        self.findings: list[Diagnostic] = []

    def report(
        self,
        code: str,
        message: str,
        key_path: KeyPath,
        *,
        key: bool = False,
        offset: int | None = None,
        do: str = "",
        unknown_word: UnknownWord | None = None,
    ) -> None:
        """Adds a finding at the value of ``key_path``, at its key, or at a character of its text.

        ``unknown_word``: a misspelt word, which gets a fix.
        """
        line, column = self.document.mark(key_path, key=key, offset=offset)
        fix = spelling_fix(self.document, key_path, unknown_word.word, unknown_word.known, key=key) if unknown_word else None
        self.findings.append(
            Diagnostic(
                code=self.codes.get(code, code),
                level=Level.ERROR,
                message=message,
                do=do,
                path=self.document.path,
                line=line,
                column=column,
                fix=fix,
            )
        )

    def inspected(self, readers: Mapping[int, Callable[[Self], R | None]]) -> Inspected[R]:
        """The value that the reader of the document's protocol finds, and all findings, from top to bottom."""
        reader = self._reader(readers)
        value = reader(self) if reader else None
        return value, tuple(sorted(self.findings, key=lambda finding: (finding.line or 0, finding.column or 0)))

    def _reader(self, readers: Mapping[int, R]) -> R | None:
        """Reader for the document's protocol, 1 where it has none; None, with a finding, for a newer protocol."""
        data = self.document.data
        version = data.get("protocol") if isinstance(data, dict) else None
        if version is None:
            return readers[1]
        if type(version) is not int or version < 1:
            self.report(FORM, f"protocol is a whole number such as {NEWEST}, not {version!r}", ("protocol",))
            return readers[NEWEST]
        if version not in readers:
            message = f"protocol {version} is newer than {NEWEST}, the newest that this strategist reads: upgrade it"
            self.report(FORM, message, ("protocol",))
        return readers.get(version)

    def fields(self, data: Any, key_path: KeyPath, known: tuple[str, ...], needed: tuple[str, ...] = ()) -> Mapping[str, Any]:
        """Known fields of a mapping; unknown, missing and empty ones are reported."""
        if not isinstance(data, dict):
            self.report(FORM, f"a mapping with {', '.join(known)} is needed", key_path)
            return {}
        for name, value in data.items():
            if name not in known:
                unknown_word = UnknownWord(name, [field for field in known if field not in data])
                self.report(
                    FIELD, f"unknown field {name}{near_miss(name, known)}", (*key_path, name), key=True, unknown_word=unknown_word
                )
            elif value is None:
                self.report(FORM, f"field {name} is empty", (*key_path, name), key=True)
        for name in needed:
            if name not in data:
                self.report(FORM, f"field {name} is missing", key_path)
        return {name: value for name, value in data.items() if name in known and value is not None}

    def items(self, data: Any, key_path: KeyPath) -> Iterator[tuple[Any, KeyPath]]:
        """Entries of a list with their places; none where ``data`` is None."""
        if data is None:
            return
        if not isinstance(data, list):
            self.report(FORM, "a list is needed", key_path)
            return
        for index, item in enumerate(data):
            yield item, (*key_path, index)

    def text(self, data: Any, key_path: KeyPath) -> Text:
        """A text: a string, or a mapping of en and zh."""
        if data is None:
            return Text()
        if isinstance(data, str):
            return Text(en=data.strip())
        words = self.fields(data, key_path, ("en", "zh")) if isinstance(data, dict) else {"": data}
        if not all(isinstance(word, str) for word in words.values()):
            self.report(FORM, "text is needed: a string, or {en: ..., zh: ...}", key_path)
            return Text()
        return Text(**{language: word.strip() for language, word in words.items()})

    def string(self, data: Any, key_path: KeyPath, choices: tuple[str, ...] = ()) -> str:
        """A string, one of ``choices`` if given; empty where missing or invalid."""
        if data is None:
            return ""
        if not isinstance(data, str) or (choices and data not in choices):
            expected = f"one of {', '.join(choices)}" if choices else "a string"
            word = data if isinstance(data, str) and choices else ""
            self.report(FORM, f"{expected} is needed{near_miss(word, choices)}", key_path, unknown_word=UnknownWord(word, choices))
            return ""
        return data

    def expression(
        self, data: Any, key_path: KeyPath, compile_text: Callable[[str], Expression] = check.condition
    ) -> Expression | None:
        """A checked expression; None where missing or invalid."""
        if data is None:
            return None
        if not isinstance(data, str):
            self.report(
                SYNTAX, f"{str(data).lower()} is not an expression", key_path, do="leave when out for a policy that always acts"
            )
            return None
        try:
            return compile_text(data)
        except ExpressionError as error:
            unknown_word = UnknownWord(error.unknown_word, error.known)
            self.report(_KINDS[error.kind], error.message, key_path, offset=error.column, unknown_word=unknown_word)
            return None

    def settings(self, data: Any, key_path: KeyPath, *, computed: Container[str] = ()) -> tuple[Setting, ...]:
        """Settings by name, bare or in full. ``computed``: full names of settings whose number may also be an expression."""
        if not isinstance(data, dict) or not data:
            self.report(FORM, "knobs or axes with their values are needed, such as {recompute: full}", key_path)
            return ()
        used = {name.name for name in map(setting, data) if name}
        read_settings = [self.setting(key, value, (*key_path, key), computed, used) for key, value in data.items()]
        return tuple(item for item in read_settings if item is not None)

    def setting(self, key: str, data: Any, key_path: KeyPath, computed: Container[str], used: set[str]) -> Setting | None:
        """One setting. ``used``: full names of the settings in the same mapping, which a spelling fix must not suggest."""
        name = setting(key)
        if name is None:
            known = [*SETTINGS, *(full.partition(".")[2] for full in SETTINGS)]
            unknown_word = UnknownWord(key, [word for word in known if (name := setting(word)) and name.name not in used])
            self.report(
                SETTING,
                f"{key} is neither a knob nor an axis{near_miss(key, known)}",
                key_path,
                key=True,
                unknown_word=unknown_word,
            )
            return None
        if name.name in computed and name.kind == INT and isinstance(data, str):
            change = self.expression(data, key_path, partial(check.quantity, unit=name.unit))
            return Setting(path=name.name, change=change) if change else None
        return Setting(path=name.name, values=self.values(name, data, key_path))

    def values(self, name: Name, data: Any, key_path: KeyPath) -> tuple[KnobValue, ...]:
        """One value or a list of values, each checked to be allowed for ``name``."""
        values = data if isinstance(data, list) else [data]
        for index, value in enumerate(values):
            item_path = (*key_path, index) if isinstance(data, list) else key_path
            if name.kind == INT:
                minimum = name.low or 0
                if type(value) is not int or value < minimum:
                    self.report(SETTING, f"{name.name} is a whole number from {minimum} on, not {value!r}", item_path)
            elif not any(same_choice(value, choice) for choice in name.choices):
                choices = ", ".join(str(choice).lower() for choice in name.choices)
                unknown_word = (
                    UnknownWord(value, [choice for choice in name.choices if isinstance(choice, str)])
                    if isinstance(value, str)
                    else None
                )
                message = f"{value!r} is not one of {choices}{near_miss(str(value), map(str, name.choices))}"
                self.report(SETTING, message, item_path, unknown_word=unknown_word)
        return tuple(values)
