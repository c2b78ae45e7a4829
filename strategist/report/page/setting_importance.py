"""Settings with the most influence on the step: how many times slower their slowest value was than their fastest."""

from collections.abc import Sequence
from math import log

from strategist.contract.report import Influence
from strategist.report.page.html import Html, element, empty
from strategist.report.setting_text import percent
from strategist.units import show_seconds

MAX_SETTINGS = 12


def influence(influences: Sequence[Influence]) -> Html:
    """A bar per setting, most influential first, with the mean of each of its values below."""
    if not influences:
        return element("p", "Too few trials differ in a setting and agree in it: its influence cannot be estimated.")
    largest = influences[:MAX_SETTINGS]
    max_ratio = max(map(_ratio, largest))
    header_cells = (
        element("th", name, scope="col") for name in ("setting", "slowest value over fastest, logarithmic", "times", "share")
    )
    caption = element(
        "caption", "What the values of a setting do to the step: mean seconds of the trials with each, and their number"
    )
    lines = [line for item in largest for line in _lines(item, max_ratio)]
    return element(
        "table", caption, element("thead", element("tr", *header_cells)), element("tbody", *lines), class_="bars influence"
    )


def _ratio(item: Influence) -> float:
    seconds = [seconds for _, seconds, _ in item.means]
    return max(seconds) / min(seconds)


def _lines(item: Influence, max_ratio: float) -> tuple[Html, Html]:
    ratio = _ratio(item)
    box = empty("rect", x=0, y=0, width=100 * log(ratio) / log(max_ratio) if max_ratio > 1 else 0, height=10, class_="left")
    label = (
        f"{item.setting}: the slowest value takes {ratio:.2f} times as long as the fastest; {percent(item.share)} of the variance"
    )
    bar = element("svg", box, viewBox="0 0 100 10", preserveAspectRatio="none", role="img", aria_label=label)
    figures = (element("td", text) for text in (f"x{ratio:.2f}", percent(item.share)))
    top = element("tr", element("th", item.setting, scope="row"), element("td", bar, class_="bar"), *figures)
    ordered = sorted(item.means, key=lambda mean: mean[1])
    values = " · ".join(f"{value}: {show_seconds(seconds)} ({trials})" for value, seconds, trials in ordered)
    return top, element("tr", element("td"), element("td", values, class_="words", colspan="3"))
