"""The settings with most influence on the step, as bars, and what each of their values reached."""

from collections.abc import Sequence

from strategist.contract.report import Influence
from strategist.report.page.html import Html, element, empty, join
from strategist.report.page.tables import table
from strategist.report.setting_text import percent
from strategist.units import show_seconds

MOST = 12


def influence(found: Sequence[Influence]) -> Html:
    """A bar a setting, those with most influence first."""
    if not found:
        return element("p", "Too few trials differ in a setting and agree in it: nothing can be told of its influence.")
    rows = [
        (item.setting, value, f"{trials}", show_seconds(seconds))
        for item in found[:MOST] for value, seconds, trials in item.means
    ]  # fmt: skip
    caption = element("caption", "Share of the variance of the step that goes with one setting")
    bars = element("table", caption, element("tbody", *map(_row, found[:MOST])), class_="bars")
    return join([bars, table("Geometric mean of the measured step", ("setting", "value", "trials", "step"), rows, words=(0, 1))])


def _row(item: Influence) -> Html:
    box = empty("rect", x=0, y=0, width=100 * item.share, height=10, class_="left")
    said = f"{item.setting}: {percent(item.share)}"
    bar = element("svg", box, viewBox="0 0 100 10", preserveAspectRatio="none", role="img", aria_label=said)
    return element(
        "tr", element("th", item.setting, scope="row"), element("td", bar, class_="bar"), element("td", percent(item.share))
    )  # fmt: skip
