"""Log patterns: regular expressions with figures for lines of a program's log.

A pattern is the line's own words with figures in braces: ``step: {step} loss: {loss} ... tps: {tokens_per_second_per_device}``.
Blanks stand for any blanks or none, ``...`` for anything up to the next words. No match is ever tried twice from the same place, so
that a line of any content is read in time that grows at most with the square of its bounded length.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from strategist.errors import StrategistError
from strategist.expr.vocabulary import near_miss
from strategist.units import BYTES

LINE_CHARACTERS = 4000
"""Of a line no more is read."""

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
"""What a program may say: by its name with its unit, the figure that it is and what one unit of it is worth. Memory is that of the
fullest device: allocated, or reserved by the caching allocator."""

_PLACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|\.\.\.")
_NUMBER = r"(?>[-+]?(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?(?:nan|inf)\b)"

Said = dict[str, float]
"""Figures of one line, in plain units."""


class PatternError(StrategistError):
    """A pattern is none."""


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """``figures`` are those that it reads."""

    text: str
    compiled: re.Pattern[str]
    figures: tuple[str, ...]

    def read(self, line: str) -> Said | None:
        """The figures of a line; None where it looks otherwise."""
        match = self.compiled.search(line[:LINE_CHARACTERS])
        return None if match is None else plain({name: number(match[name]) for name in self.figures})


def number(text: str) -> float:
    """A number as logs show it, with commas between thousands."""
    return float(text.replace(",", ""))


def plain(said: Said) -> Said:
    """The figures in plain units."""
    return {FIGURES[name][0]: value * FIGURES[name][1] for name, value in said.items()}


def check_figure(name: str) -> None:
    """Whether it is the name of a figure.

    Raises:
        PatternError: it is none; names the nearest.
    """
    if name not in FIGURES:
        raise PatternError(f"unknown figure {name}{near_miss(name, FIGURES) or '; known are ' + ', '.join(FIGURES)}")


def pattern(text: str) -> Pattern:
    """The pattern that ``text`` is; ``{{`` and ``}}`` are braces.

    Raises:
        PatternError: a figure is unknown or stands twice, or nothing says where it is.
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
    """Words, figures and gaps in their order; whether each is a figure."""
    end, words = 0, ""
    for match in _PLACE.finditer(text):
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
    """The words as an expression in which any blanks, or none, stand for blanks; empty where there are no words."""
    if not text.strip():
        return r"\s*+" if text else ""
    pieces = (re.escape(word) for word in text.split())
    before, after = (r"\s*+" if blank else "" for blank in (text[0].isspace(), text[-1].isspace()))
    return before + r"\s*+".join(pieces) + after


def is_finite(value: float) -> bool:
    """Whether a figure is a number that something can be made of."""
    return -inf < value < inf
