"""Output of a running program: steps in its log, and figures in its JSON file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from strategist.frozen import frozen
from strategist.programs.log_pattern import (
    GRAD_NORM,
    LOSS,
    PEAK_MEMORY,
    PEAK_RESERVED,
    RATES,
    STEP,
    STEP_SECONDS,
    Figures,
    in_base_units,
    is_finite,
    pattern,
)

PEAK_FIGURES = (PEAK_MEMORY, PEAK_RESERVED)


@frozen
class Reading:
    """Rules for reading the output of one run: a program's metrics, with the plan's tokens and sequences per step and its devices.

    json: path of the program's file; empty without one.
    fields: positions in that file by figure, with dots between keys.
    environment: further environment variables for the program.
    """

    lines: tuple[str, ...]
    json: str
    fields: dict[str, str]
    warmup_steps: int
    out_of_memory: tuple[str, ...]
    out_of_memory_exit_codes: tuple[int, ...]
    environment: dict[str, str]
    tokens_per_step: int
    sequences_per_step: int
    devices: int

    def seconds(self, figures: Figures) -> float | None:
        """The time of a step, as reported or from a rate; None without a time and a positive rate."""
        if STEP_SECONDS in figures:
            return figures[STEP_SECONDS]
        worth = (1.0, self.sequences_per_step, self.tokens_per_step, self.tokens_per_step / self.devices)
        rates = (amount / figures[name] for name, amount in zip(RATES, worth, strict=True) if figures.get(name, 0.0) > 0)
        return next(rates, None)


@dataclass
class Step:
    """Figures of one step. ``arrived``: when it was first reported, in monotonic seconds."""

    number: int
    arrived: float
    figures: Figures = field(default_factory=dict)


class Reader:
    """Reads a log line by line."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.patterns = [pattern(text) for text in reading.lines]
        self.steps: dict[int, Step] = {}
        self.peaks: Figures = {}

    def line(self, text: str, now: float) -> Step | None:
        """Reads a line that arrived at ``now``; returns the step that it begins, or None."""
        figures = next((found for item in self.patterns if (found := item.read(text)) is not None), None)
        return None if figures is None else self.take(figures, now)

    def take(self, figures: Figures, now: float) -> Step | None:
        """Records figures. Figures without a step number belong to the latest step, unless it has them already."""
        for name in PEAK_FIGURES:
            if name in figures:
                self.peaks[name] = max(self.peaks.get(name, 0.0), figures.pop(name))
        if not figures or not is_finite(figures.get(STEP, 0.0)):
            return None
        number = int(figures.pop(STEP)) if STEP in figures else self._latest(figures)
        known = self.steps.get(number)
        if known is not None:
            known.figures = {**figures, **known.figures}  # several ranks may report the same step
            return None
        self.steps[number] = Step(number=number, arrived=now, figures=figures)
        return self.steps[number]

    def _latest(self, figures: Figures) -> int:
        latest = max(self.steps, default=0)
        return latest if latest and not self.steps[latest].figures.keys() & figures.keys() else latest + 1

    def document(self, text: str) -> None:
        """Reads the JSON file: one object, in which a figure may be a list with a value per step; or one object a line.

        Raises:
            ValueError: it is neither.
        """
        try:
            objects = [json.loads(text)]
        except json.JSONDecodeError:
            objects = [json.loads(line) for line in text.splitlines() if line.strip()]
        for number, record in enumerate(objects, start=1):
            found = {figure: _value_at(record, path) for figure, path in self.reading.fields.items()}
            lists = {figure: value for figure, value in found.items() if isinstance(value, list)}
            single = {figure: float(value) for figure, value in found.items() if _is_number(value)}
            rows = max(map(len, lists.values()), default=0)
            for row in range(rows):
                self.take(in_base_units({name: float(values[row]) for name, values in lists.items() if row < len(values)}), 0.0)
            if single and rows:
                self.take({name: value for name, value in in_base_units(single).items() if name in PEAK_FIGURES}, 0.0)
            elif single:
                self.take(in_base_units(single), float(number))

    def seconds(self) -> tuple[list[float], bool]:
        """Times of the steps after warm-up; and whether they are intervals between log lines, because no times are reported."""
        steps = list(self.steps.values())
        seconds = [self.reading.seconds(step.figures) for step in steps]
        if any(value is not None for value in seconds):
            counted = seconds[self.reading.warmup_steps :] if len(seconds) > 1 else seconds
            return [value for value in counted if value is not None], False
        arrivals = [step.arrived for step in steps]
        between = [later - earlier for earlier, later in pairwise(arrivals)]
        return between[max(0, self.reading.warmup_steps - 1) :], True

    def figures(self, name: str) -> list[float]:
        """The values of a figure, step by step."""
        return [step.figures[name] for step in self.steps.values() if name in step.figures]

    @property
    def losses(self) -> list[float]:
        """Loss by step."""
        return self.figures(LOSS)

    @property
    def grad_norms(self) -> list[float]:
        """Norm of the gradient by step."""
        return self.figures(GRAD_NORM)


def _value_at(data: Any, path: str) -> Any:
    """The value at a position such as ``memory.peak``; None without one."""
    for key in path.split("."):
        if isinstance(data, Mapping):
            data = data.get(key)
        elif isinstance(data, Sequence) and not isinstance(data, str) and key.isdigit() and int(key) < len(data):
            data = data[int(key)]
        else:
            return None
    return data


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
