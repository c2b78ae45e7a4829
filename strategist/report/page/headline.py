"""Headline of a report: a badge with the verdict, and the most important figures."""

from collections.abc import Sequence

from strategist.frozen import frozen
from strategist.report.page.html import Html, element, join

GOOD, UNSURE, BAD = "good", "unsure", "bad"


@frozen
class Figure:
    """A figure with its name and a remark."""

    name: str
    value: str
    remark: str = ""


def headline(badge: str, css_class: str, verdict: str, figures: Sequence[Figure]) -> Html:
    """The verdict as a ``badge`` (``css_class``: good, unsure or bad) with its text, above the figures."""
    paragraph = element("p", element("strong", badge, class_=f"badge {css_class}"), element("span", verdict), class_="verdict")
    return join([paragraph, element("ul", *map(_tile, figures), class_="tiles")])


def _tile(figure: Figure) -> Html:
    remark = element("small", figure.remark) if figure.remark else Html()
    return element("li", element("span", figure.name), element("b", figure.value), remark)
