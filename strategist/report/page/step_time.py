"""Time of a step by part, as one bar and a table."""

from dataclasses import asdict

from strategist.contract.estimate import Estimate
from strategist.report.page.bars import Bar, bars
from strategist.report.page.html import Html
from strategist.report.page.legend import beside, legend
from strategist.report.plan import PART_NAMES
from strategist.report.setting_text import percent
from strategist.units import show_seconds

LEAST = 5e-4
"""Shares of the step below this one are in the table alone."""


def time(estimate: Estimate) -> Html:
    """What each part adds to the step; of communication what nothing hides."""
    step = estimate.step_seconds
    parts = {name: seconds for name, seconds in asdict(estimate.time).items() if seconds > 0}
    words = {name: f"{PART_NAMES.get(name, name)} {show_seconds(seconds)}" for name, seconds in parts.items()}
    shown = {name: seconds for name, seconds in parts.items() if seconds >= LEAST * step}
    row = Bar(name="a step", parts=shown, words={name: words[name] for name in shown}, figure=show_seconds(step))
    lines = [(name, PART_NAMES.get(name, name), show_seconds(parts[name]), percent(parts[name] / step)) for name in parts]
    return beside(bars("Time of a step", [row], step), legend("Parts of the step", ("seconds", "of the step"), lines))
