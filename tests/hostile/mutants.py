"""Random small changes of shipped files that readers interpret differently."""

import random
from collections.abc import Callable, Sequence

ODD = (
    "010", "1e3", "1_000", "0x1F", "0o17", "0b11", "1:30", ".5", "5.", "-.5e-3", "1e999", "-0", "9" * 19, "9" * 400, ".inf",
    ".NaN", "NaN", "Infinity", "-Infinity", "~", "null", "Null", "nULL", "yes", "no", "on", "Off", "y", "true", "TRUE", "tRUE",
    "2001-12-14", "=", "<<", "!!int 1", "!x", "&a", "*a", "&a x", '""', "''", "[]", "{}", "[1, [2]]", "{a: {b: c}}", '{"a": 1}',
    "|", ">-", "|+2", "- -", "? a", ": b", "@a", "`a", "%a", "#", " #", "\\", '"\\x41"', '"\\u0041"', '"\\ud83d\\ude00"',
    '"\\ud800"', '"\\e"', "'it''s'", "\u4e2d", "\u0663", "\u202e", "\u00a0", "\u2028", "\x85", "\ufeff", "\x07", "\x00", "\t",
    "\r", "\r\n", "\U0001f600", "a: b", "a:b", "- a", "-", "--", "---", "...", "--- a", "<<: {a: 1}", "__proto__",
    "../../etc/passwd", "$(id)", "1" + "0" * 30, "-1", "0", "1.0",
)  # fmt: skip
"""Values, marks and characters that YAML 1.1, YAML 1.2 and JSON, or their readers, interpret differently."""
MARKS = "{}[]:,\"'-#&*!|>%@`?\\ \n\t0.9eE+~"


def mutant(texts: Sequence[str], chances: random.Random) -> str:
    """One of the texts with one to three changes. The last line has a line end, since readers differ on a block of text that
    ends with its file."""
    text = chances.choice(texts)
    for _ in range(chances.randint(1, 3)):
        text = chances.choice(CHANGES)(text, texts, chances)
    return text if text.endswith("\n") else f"{text}\n"


def _place(text: str, chances: random.Random) -> int:
    return chances.randrange(len(text) + 1)


def _mark(text: str, _: Sequence[str], chances: random.Random) -> str:
    at = _place(text, chances)
    return text[:at] + chances.choice(MARKS) + text[at + chances.randint(0, 1) :]


def _odd(text: str, _: Sequence[str], chances: random.Random) -> str:
    at = _place(text, chances)
    return text[:at] + chances.choice(ODD) + text[at:]


def _value(text: str, _: Sequence[str], chances: random.Random) -> str:
    """Replaces the value after a colon by an odd value."""
    colons = [place for place, letter in enumerate(text) if letter == ":"]
    if not colons:
        return chances.choice(ODD)
    at = chances.choice(colons) + 1
    ends = [end for mark in ",\n}]" if (end := text.find(mark, at)) >= 0]
    return f"{text[:at]} {chances.choice(ODD)}{text[min(ends, default=len(text)) :]}"


def _key(text: str, _: Sequence[str], chances: random.Random) -> str:
    """Repeats a line, possibly with another value."""
    lines = text.split("\n")
    at = chances.randrange(len(lines))
    copied = lines[at] if chances.random() < 0.5 else f"{lines[at].split(':')[0]}: {chances.choice(ODD)}"
    return "\n".join([*lines[:at], copied, *lines[at:]])


def _gone(text: str, _: Sequence[str], chances: random.Random) -> str:
    at = _place(text, chances)
    return text[:at] + text[at + chances.randint(1, 60) :]


def _cut(text: str, _: Sequence[str], chances: random.Random) -> str:
    return text[: _place(text, chances)]


def _moved(text: str, _: Sequence[str], chances: random.Random) -> str:
    """Moves a line, with another indentation."""
    lines = text.split("\n")
    line = lines.pop(chances.randrange(len(lines)))
    lines.insert(chances.randrange(len(lines) + 1), " " * chances.randint(0, 4) + line.lstrip(" "))
    return "\n".join(lines)


def _joined(text: str, texts: Sequence[str], chances: random.Random) -> str:
    """Continues with the text of another file."""
    other = chances.choice(texts)
    return text[: _place(text, chances)] + other[_place(other, chances) :]


def _repeated(text: str, _: Sequence[str], chances: random.Random) -> str:
    at = _place(text, chances)
    piece = text[at : at + chances.randint(1, 20)]
    return text[:at] + piece * chances.randint(2, 40) + text[at:]


CHANGES: tuple[Callable[[str, Sequence[str], random.Random], str], ...] = (
    _mark, _mark, _odd, _value, _value, _value, _key, _gone, _cut, _moved, _joined, _repeated,
)  # fmt: skip
