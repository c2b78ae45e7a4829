"""Output of a running program: the steps in its log, and the figures in its JSON file."""

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

PEAKS = (PEAK_MEMORY, PEAK_RESERVED)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How one run is read: a program's metrics for a plan whose step has so many tokens and sequences, on so many devices.

    ``json`` is the path of its file, empty for none; ``fields`` are places in it by figure, with dots between keys.
    ``environment`` is what the program is given beside everything else.
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
        """The time of a step, said as such or as a rate; None where it is neither, or no rate that can be."""
        if STEP_SECONDS in said:
            return said[STEP_SECONDS]
        worth = (1.0, self.sequences_per_step, self.tokens_per_step, self.tokens_per_step / self.devices)
        rates = (amount / said[name] for name, amount in zip(RATES, worth, strict=True) if said.get(name, 0.0) > 0)
        return next(rates, None)


@dataclass
class Step:
    """What is known of one step; ``arrived`` is when it was first spoken of, in monotonic seconds."""

    number: int
    arrived: float
    said: Said = field(default_factory=dict)


class Reader:
    """Takes in a log line by line."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.patterns = [pattern(text) for text in reading.lines]
        self.steps: dict[int, Step] = {}
        self.peaks: Said = {}

    def line(self, text: str, now: float) -> Step | None:
        """Reads a line that came at ``now``; the step that it begins."""
        said = next((found for one in self.patterns if (found := one.read(text)) is not None), None)
        return None if said is None else self.take(said, now)

    def take(self, said: Said, now: float) -> Step | None:
        """Takes figures in. Where no step is named they belong to the latest, unless that has said them already."""
        for name in PEAKS:
            if name in said:
                self.peaks[name] = max(self.peaks.get(name, 0.0), said.pop(name))
        if not said or not is_finite(said.get(STEP, 0.0)):
            return None
        number = int(said.pop(STEP)) if STEP in said else self._latest(said)
        known = self.steps.get(number)
        if known is not None:
            known.said = {**said, **known.said}  # several ranks may say the same
            return None
        self.steps[number] = Step(number=number, arrived=now, said=said)
        return self.steps[number]

    def _latest(self, said: Said) -> int:
        latest = max(self.steps, default=0)
        return latest if latest and not self.steps[latest].said.keys() & said.keys() else latest + 1

    def document(self, text: str) -> None:
        """Takes in the JSON file: one object, of which a figure may be a list with a value for each step, or an object a line.

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
                self.take({name: value for name, value in plain(single).items() if name in PEAKS}, 0.0)
            elif single:
                self.take(plain(single), float(number))

    def seconds(self) -> tuple[list[float], bool]:
        """Times of the steps after warm-up, and whether they are those between lines of the log, where nothing says them."""
        steps = list(self.steps.values())
        told = [self.reading.seconds(step.said) for step in steps]
        if any(value is not None for value in told):
            counted = told[self.reading.warmup_steps :] if len(told) > 1 else told
            return [value for value in counted if value is not None], False
        arrivals = [step.arrived for step in steps]
        between = [later - earlier for earlier, later in pairwise(arrivals)]
        return between[max(0, self.reading.warmup_steps - 1) :], True

    def figures(self, name: str) -> list[float]:
        """What was said under ``name``, step by step."""
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
    """The value at a place such as ``memory.peak``; None where there is none."""
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
