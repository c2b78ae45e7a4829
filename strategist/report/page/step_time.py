"""Time of a step by part, as one bar and a table."""

from collections.abc import Mapping
from dataclasses import asdict

from strategist.contract.estimate import Estimate
from strategist.report.breakdown import NAMES
from strategist.report.page.bars import Bar, bars
from strategist.report.page.html import Html
from strategist.report.page.legend import beside, legend
from strategist.report.setting_text import percent
from strategist.units import show_seconds

LEAST = 5e-4
"""Shares of the step below this one are in the table alone."""


def time(estimate: Estimate) -> Html:
    """What each part adds to the step; of communication what nothing hides."""
    step = estimate.step_seconds
    parts = {name: seconds for name, seconds in asdict(estimate.time).items() if seconds > 0}
    row = step_bar("a step", {name: seconds for name, seconds in parts.items() if seconds >= LEAST * step}, step)
    lines = [(name, NAMES.get(name, name), show_seconds(parts[name]), percent(parts[name] / step)) for name in parts]
    return beside(bars("Time of a step", [row], step), legend("Parts of the step", ("seconds", "of the step"), lines))


def step_bar(name: str, parts: Mapping[str, float], seconds: float) -> Bar:
    """One bar of the parts of a step, in seconds."""
    there = {part: value for part, value in parts.items() if value > 0}
    words = {part: f"{NAMES.get(part, part)} {show_seconds(value)}" for part, value in there.items()}
    return Bar(name=name, parts=there, words=words, figure=show_seconds(seconds))
