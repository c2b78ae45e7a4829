"""Log patterns: regular expressions that read figures from lines of a program's log.

A pattern is the text of the line with figures in braces: ``step: {step} loss: {loss} ... tps: {tokens_per_second_per_device}``.
A blank matches any number of blanks, or none; ``...`` matches anything up to the next words. Matching never backtracks, so the
time for a line is at most quadratic in its length, which is limited.
"""

import re
from collections.abc import Iterator
from math import inf

from strategist.errors import StrategistError
from strategist.expr.vocabulary import near_miss
from strategist.frozen import frozen
from strategist.units import BYTES

LINE_CHARACTERS = 4000
"""Maximum number of characters that are read of a line."""

STEP, LOSS, GRAD_NORM, STEP_SECONDS = "step", "loss", "grad_norm", "step_seconds"
PEAK_MEMORY, PEAK_RESERVED = "peak_memory_bytes", "peak_reserved_bytes"
_SIZES = {"bytes": 1.0, **{unit.lower(): float(BYTES[unit]) for unit in ("KiB", "MiB", "GiB", "MB", "GB")}}
RATES = ("steps_per_second", "sequences_per_second", "tokens_per_second", "tokens_per_second_per_device")

FIGURES: dict[str, tuple[str, float]] = {
    **{name: (name, 1.0) for name in (STEP, LOSS, GRAD_NORM, STEP_SECONDS, *RATES)},
    "step_milliseconds": (STEP_SECONDS, 1e-3),
    **{f"peak_memory_{unit}": (PEAK_MEMORY, size) for unit, size in _SIZES.items()},
    **{f"peak_reserved_{unit}": (PEAK_RESERVED, size) for unit, size in _SIZES.items()},
}
"""Figures that a program may report: by name with unit, the figure and the value of one unit.

Memory is that of the device with the highest use: allocated, or reserved by the caching allocator.
"""

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|\.\.\.")
_NUMBER = r"(?>[-+]?(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?(?:nan|inf)\b)"

Figures = dict[str, float]
"""Figures of one line, in base units."""


class PatternError(StrategistError):
    """A pattern is invalid."""


@frozen
class Pattern:
    """A compiled pattern. ``figures``: names of the figures that it reads."""

    text: str
    compiled: re.Pattern[str]
    figures: tuple[str, ...]

    def read(self, line: str) -> Figures | None:
        """The figures of a line; None if the line does not match."""
        match = self.compiled.search(line[:LINE_CHARACTERS])
        return None if match is None else in_base_units({name: number(match[name]) for name in self.figures})


def number(text: str) -> float:
    """A number as logs write it, with commas between thousands."""
    return float(text.replace(",", ""))


def in_base_units(figures: Figures) -> Figures:
    """The figures in base units."""
    return {FIGURES[name][0]: value * FIGURES[name][1] for name, value in figures.items()}


def check_figure(name: str) -> None:
    """Checks that a figure has that name.

    Raises:
        PatternError: none has; names the nearest.
    """
    if name not in FIGURES:
        raise PatternError(f"unknown figure {name}{near_miss(name, FIGURES) or '; known are ' + ', '.join(FIGURES)}")


def pattern(text: str) -> Pattern:
    """Compiles a pattern; ``{{`` and ``}}`` are literal braces.

    Raises:
        PatternError: a figure is unknown, occurs twice, or has no text before it to locate it.
    """
    figures: list[str] = []
    pieces: list[str] = []
    gap = False
    for piece, is_figure in _pieces(text):
        if piece == "...":
            gap = True
        elif is_figure:
            check_figure(piece)
            if piece in figures:
                raise PatternError(f"{piece} stands twice; leave one of them out")
            if gap or not pieces:
                raise PatternError(f"{{{piece}}} needs the words that stand before it in the line; add them")
            figures.append(piece)
            pieces.append(f"(?P<{piece}>{_NUMBER})")
        elif (words := _words(piece)) and not (gap and not piece.strip()):
            pieces.append(f"(?>.*?{words})" if gap else words)
            gap = False
    if not figures:
        raise PatternError("has no figure in braces; write e.g. {step_seconds}")
    return Pattern(text=text, compiled=re.compile("".join(pieces)), figures=tuple(figures))


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Words, figures and gaps of a pattern in order, and whether each is a figure."""
    end, words = 0, ""
    for match in _PLACEHOLDER.finditer(text):
        words += text[end : match.start()]
        end = match.end()
        if match[0] in ("{{", "}}"):
            words += match[0][0]
            continue
        yield words, False
        words = ""
        if match[0] in ("{", "}"):
            raise PatternError(f"{match[0]} has no partner; a brace itself is written {match[0] * 2}")
        yield (match[0], False) if match[1] is None else (match[1].strip(), True)
    yield words + text[end:], False


def _words(text: str) -> str:
    """An expression for words, with any number of blanks (or none) for each run of blanks; empty for an empty text."""
    if not text.strip():
        return r"\s*+" if text else ""
    pieces = (re.escape(word) for word in text.split())
    before, after = (r"\s*+" if blank else "" for blank in (text[0].isspace(), text[-1].isspace()))
    return before + r"\s*+".join(pieces) + after


def is_finite(value: float) -> bool:
    """Whether a figure is finite (and not NaN)."""
    return -inf < value < inf
