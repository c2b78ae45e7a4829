"""Step time by part, as a bar and a table."""

from collections.abc import Mapping
from dataclasses import asdict

from strategist.contract.estimate import Estimate
from strategist.report.breakdown import NAMES
from strategist.report.page.bars import Bar, bars
from strategist.report.page.html import Html
from strategist.report.page.legend import legend, with_legend
from strategist.report.setting_text import percent
from strategist.units import show_seconds

MIN_SHARE = 5e-4
"""Parts below this share of the step appear only in the table."""


def time(estimate: Estimate) -> Html:
    """Seconds of each part; communication counts if it is exposed."""
    step = estimate.step_seconds
    parts = {name: seconds for name, seconds in asdict(estimate.time).items() if seconds > 0}
    row = step_bar("a step", {name: seconds for name, seconds in parts.items() if seconds >= MIN_SHARE * step}, step)
    lines = [(name, NAMES.get(name, name), show_seconds(parts[name]), percent(parts[name] / step)) for name in parts]
    return with_legend(bars("Time of a step", [row], step), legend("Parts of the step", ("seconds", "of the step"), lines))


def step_bar(name: str, parts: Mapping[str, float], seconds: float) -> Bar:
    """A stacked bar of a step's parts, in seconds."""
    present = {part: value for part, value in parts.items() if value > 0}
    words = {part: f"{NAMES.get(part, part)} {show_seconds(value)}" for part, value in present.items()}
    return Bar(name=name, parts=present, words=words, figure=show_seconds(seconds))
