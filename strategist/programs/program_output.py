"""Output of a running program: steps in its log, and figures in its JSON file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from strategist.programs.log_pattern import (
    GRAD_NORM,
    LOSS,
    PEAK_MEMORY,
    PEAK_RESERVED,
    RATES,
    STEP,
    STEP_SECONDS,
    Said,
    is_finite,
    pattern,
    plain,
)

PEAK_FIGURES = (PEAK_MEMORY, PEAK_RESERVED)


@dataclass(frozen=True, kw_only=True)
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

    def seconds(self, said: Said) -> float | None:
        """The time of a step, as reported or from a rate; None without a time and a positive rate."""
        if STEP_SECONDS in said:
            return said[STEP_SECONDS]
        worth = (1.0, self.sequences_per_step, self.tokens_per_step, self.tokens_per_step / self.devices)
        rates = (amount / said[name] for name, amount in zip(RATES, worth, strict=True) if said.get(name, 0.0) > 0)
        return next(rates, None)


@dataclass
class Step:
    """Figures of one step. ``arrived``: when it was first reported, in monotonic seconds."""

    number: int
    arrived: float
    said: Said = field(default_factory=dict)


class Reader:
    """Reads a log line by line."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.patterns = [pattern(text) for text in reading.lines]
        self.steps: dict[int, Step] = {}
        self.peaks: Said = {}

    def line(self, text: str, now: float) -> Step | None:
        """Reads a line that arrived at ``now``; returns the step that it begins, or None."""
        said = next((found for one in self.patterns if (found := one.read(text)) is not None), None)
        return None if said is None else self.take(said, now)

    def take(self, said: Said, now: float) -> Step | None:
        """Records figures. Figures without a step number belong to the latest step, unless it has them already."""
        for name in PEAK_FIGURES:
            if name in said:
                self.peaks[name] = max(self.peaks.get(name, 0.0), said.pop(name))
        if not said or not is_finite(said.get(STEP, 0.0)):
            return None
        number = int(said.pop(STEP)) if STEP in said else self._latest(said)
        known = self.steps.get(number)
        if known is not None:
            known.said = {**said, **known.said}  # several ranks may report the same step
            return None
        self.steps[number] = Step(number=number, arrived=now, said=said)
        return self.steps[number]

    def _latest(self, said: Said) -> int:
        latest = max(self.steps, default=0)
        return latest if latest and not self.steps[latest].said.keys() & said.keys() else latest + 1

    def document(self, text: str) -> None:
        """Reads the JSON file: one object, in which a figure may be a list with a value per step; or one object a line.

        Raises:
            ValueError: it is neither.
        """
        try:
            objects = [json.loads(text)]
        except json.JSONDecodeError:
            objects = [json.loads(line) for line in text.splitlines() if line.strip()]
        for number, one in enumerate(objects, start=1):
            found = {figure: _at(one, place) for figure, place in self.reading.fields.items()}
            lists = {figure: value for figure, value in found.items() if isinstance(value, list)}
            single = {figure: float(value) for figure, value in found.items() if _is_number(value)}
            rows = max(map(len, lists.values()), default=0)
            for row in range(rows):
                self.take(plain({name: float(values[row]) for name, values in lists.items() if row < len(values)}), 0.0)
            if single and rows:
                self.take({name: value for name, value in plain(single).items() if name in PEAK_FIGURES}, 0.0)
            elif single:
                self.take(plain(single), float(number))

    def seconds(self) -> tuple[list[float], bool]:
        """Times of the steps after warm-up; and whether they are intervals between log lines, because no times are reported."""
        steps = list(self.steps.values())
        told = [self.reading.seconds(step.said) for step in steps]
        if any(value is not None for value in told):
            counted = told[self.reading.warmup_steps :] if len(told) > 1 else told
            return [value for value in counted if value is not None], False
        arrivals = [step.arrived for step in steps]
        between = [later - earlier for earlier, later in pairwise(arrivals)]
        return between[max(0, self.reading.warmup_steps - 1) :], True

    def figures(self, name: str) -> list[float]:
        """The values of a figure, step by step."""
        return [step.said[name] for step in self.steps.values() if name in step.said]

    @property
    def losses(self) -> list[float]:
        """Loss by step."""
        return self.figures(LOSS)

    @property
    def grad_norms(self) -> list[float]:
        """Norm of the gradient by step."""
        return self.figures(GRAD_NORM)


def _at(data: Any, place: str) -> Any:
    """The value at a position such as ``memory.peak``; None without one."""
    for key in place.split("."):
        if isinstance(data, Mapping):
            data = data.get(key)
        elif isinstance(data, Sequence) and not isinstance(data, str) and key.isdigit() and int(key) < len(data):
            data = data[int(key)]
        else:
            return None
    return data


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
