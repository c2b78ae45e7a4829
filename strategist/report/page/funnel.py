"""Funnel of candidates: how many each card, and memory, rejected, and how many remain."""

from collections import Counter
from collections.abc import Iterator
from math import log

from strategist.contract.report import Space
from strategist.report.page.html import Html, element, empty, join
from strategist.report.page.tables import table

MAX_CARDS = 14
"""Number of cards with a line of their own, those with the most rejections; the rest share one line."""


def funnel(space: Space) -> Html:
    """A bar per step, and the policies as a table."""
    policies = sorted(space.dropped, key=lambda item: -item.candidates)
    because = [(f"{item.card}/{item.policy}", f"{item.candidates:,}", item.because) for item in policies]
    head = ("policy", "candidates", "because")
    return join([_bars(space), table("What policies took away", head, because, words=(0, 2)) if because else Html()])


def steps(space: Space, max_cards: int) -> Iterator[tuple[str, int]]:
    """Rejections by card, the largest number first and one number for all beyond the first ``max_cards`` cards; then by memory."""
    cards: Counter[str] = Counter()
    for item in space.dropped:
        cards[item.card] += item.candidates
    ordered = cards.most_common()
    yield from ordered[:max_cards]
    if rest := ordered[max_cards:]:
        yield f"{len(rest)} other cards", sum(count for _, count in rest)
    for name, count in (("too large for the device", space.too_large), ("too large for the hosts", space.host_too_small)):
        if count:
            yield name, count


def _bars(space: Space) -> Html:
    """Candidates left after each step, on a logarithmic scale."""
    left, rows = space.candidates, [_row("all candidates", space.candidates, space.candidates, "")]
    for name, count in steps(space, MAX_CARDS):
        left -= count
        rows.append(_row(name, left, space.candidates, f"−{count:,}"))
    rows.append(_row("fit", space.feasible, space.candidates, "", "feasible"))
    header_cells = (element("th", text, scope="col") for text in ("", "left after it", "removed", "left"))
    caption = element("caption", "From all candidates to those that fit (bars are logarithmic)")
    return element("table", caption, element("thead", element("tr", *header_cells)), element("tbody", *rows), class_="bars funnel")


def _row(name: str, left: int, total: int, dropped: str, css_class: str = "left") -> Html:
    share = 100 * log(1 + left) / log(1 + total) if total else 0.0
    box = empty("rect", x=0, y=0, width=share, height=10, class_=css_class)
    label = f"{name}: {left:,} of {total:,} left"
    bar = element("svg", box, viewBox="0 0 100 10", preserveAspectRatio="none", role="img", aria_label=label)
    return element(
        "tr", element("th", name, scope="row"), element("td", bar, class_="bar"), element("td", dropped), element("td", f"{left:,}")
    )  # fmt: skip
