"""The simulated step: a row per pipeline rank, a box per pass of one micro-batch over one stage."""

from collections.abc import Callable, Iterator, Sequence
from statistics import median

from strategist.contract.report import Span, Timeline
from strategist.report.log_axis import round_steps
from strategist.report.page.html import Html, element, empty, join
from strategist.report.page.tables import swatch
from strategist.report.plan import PART_NAMES
from strategist.report.setting_text import counted, percent
from strategist.units import show_seconds

LEAST, MOST, ROW, GAP, LEFT, BOTTOM = 900.0, 12000.0, 20.0, 5.0, 52.0, 22.0
"""Pixels. The picture is as wide as its numbers need, from LEAST to MOST, and scrolls; an overview is above it then."""

TICK = 120.0

NUMBERED = 14.0
"""Least width of boxes with the number of their micro-batch."""

TITLED = 4000
"""Number of boxes up to which each has a tooltip; beyond, boxes of one kind on a rank are one shape."""


def timeline(played: Timeline) -> Html:
    """The picture, its legend, and the waiting time of each rank."""
    works = list(dict.fromkeys(span.work for span in played.spans))
    legend = element("ul", *(element("li", swatch(_part(work)), _name(work)) for work in works), class_="key")
    waits = element("p", _waiting(played), class_="note") if len(played.bubble_seconds) > 1 else Html()
    wide = _width(played)
    whole = _picture(played, LEAST, _shapes) if wide > LEAST else Html()
    boxes = _boxes if len(played.spans) <= TITLED else _shapes
    name = "Timeline, with numbers" if whole else "Timeline"
    picture = element("div", _picture(played, wide, boxes), class_="wide scroll", tabindex="0", role="region", aria_label=name)
    return join([whole, picture, legend, waits])


def _waiting(played: Timeline) -> str:
    shares = [max(own, 0.0) / played.step_seconds for own in played.bubble_seconds]
    most, least = (pick(range(len(shares)), key=shares.__getitem__) for pick in (max, min))
    return f"Waiting takes {percent(shares[least])} of {_what(played)} on rank {least}, {percent(shares[most])} on rank {most}."


def _what(played: Timeline) -> str:
    return "the step" if played.rounds == 1 else f"the last of {played.rounds} rounds of the step"


def _part(work: str) -> str:
    return work.replace(" ", "-")


def _name(work: str) -> str:
    return PART_NAMES.get(work, work)


def _width(played: Timeline) -> float:
    """Width at which the shortest passes have room for their numbers; the width of a screen if there are too many passes."""
    kinds: dict[str, list[float]] = {}
    for span in played.spans:
        if span.micro_batch is not None:
            kinds.setdefault(span.work, []).append(span.end_seconds - span.start_seconds)
    shortest = min((median(passes) for passes in kinds.values()), default=0.0)
    wide = NUMBERED * played.step_seconds / shortest if shortest > 0 else 0.0
    return max(wide, LEAST) if wide <= MOST else LEAST


def _picture(played: Timeline, width: float, boxes: Callable[[Timeline, float], Iterator[Html]]) -> Html:
    ranks = len(played.bubble_seconds)
    height = ranks * (ROW + GAP)
    said = (
        f"{_what(played).capitalize()} of {counted(ranks, 'pipeline rank')} with {played.micro_batches} micro-batches"
        f"{', schedule ' + played.schedule if played.schedule else ''}: {show_seconds(played.step_seconds)}"
    )
    scale = width / played.step_seconds
    parts = join([*_frame(played, scale, height), *boxes(played, scale)])
    box = f"{-LEFT:g} 0 {LEFT + width + 24:.0f} {height + BOTTOM:g}"
    wide = round(LEFT + width + 24)
    return element("svg", parts, viewBox=box, role="img", aria_label=said, class_="timeline", width=str(wide))


def _frame(played: Timeline, scale: float, height: float) -> Iterator[Html]:
    """Rows with their rank, and seconds below; ``scale`` is the width of a second."""
    width = scale * played.step_seconds
    for rank in range(len(played.bubble_seconds)):
        y = rank * (ROW + GAP)
        yield empty("rect", x=0, y=y, width=width, height=ROW, class_="idle")
        yield element("text", f"rank {rank}", x=-6, y=y + ROW / 2 + 4, text_anchor="end")
    for seconds in round_steps(played.step_seconds, int(width / TICK)):
        x = seconds * scale
        yield empty("path", d=f"M{x:.1f} {height:g}v5", class_="grid")
        yield element("text", show_seconds(seconds) if seconds else "0", x=x, y=height + 17, text_anchor="middle")


def _boxes(played: Timeline, scale: float) -> Iterator[Html]:
    for span in played.spans:
        x, wide = span.start_seconds * scale, (span.end_seconds - span.start_seconds) * scale
        y = span.rank * (ROW + GAP)
        title = element("title", _said(span))
        yield element("rect", title, x=x, y=y, width=max(wide - 0.4, 0.2), height=ROW, class_=f"part-{_part(span.work)}")
        if span.micro_batch is not None and wide >= NUMBERED * 0.99:
            yield element("text", str(span.micro_batch), x=x + wide / 2, y=y + ROW / 2 + 4, text_anchor="middle", class_="number")


def _said(span: Span) -> str:
    took = f"{show_seconds(span.end_seconds - span.start_seconds)}, from {show_seconds(span.start_seconds)} on"
    if span.stage is None:
        return f"rank {span.rank}: {_name(span.work)}, {took}"
    return f"rank {span.rank}: {span.work} of micro-batch {span.micro_batch}, stage {span.stage}: {took}"


def _shapes(played: Timeline, scale: float) -> Iterator[Html]:
    """Thousands of boxes as one path per rank and kind of action."""
    shapes: dict[tuple[int, str], list[str]] = {}
    for span in played.spans:
        x, wide = span.start_seconds * scale, (span.end_seconds - span.start_seconds) * scale
        corner = f"M{x:.1f} {span.rank * (ROW + GAP):g}h{max(wide - 0.2, 0.1):.1f}v{ROW:g}h-{max(wide - 0.2, 0.1):.1f}z"
        shapes.setdefault((span.rank, span.work), []).append(corner)
    for (rank, work), corners in shapes.items():
        yield _shape(rank, work, corners)


def _shape(rank: int, work: str, corners: Sequence[str]) -> Html:
    title = element("title", f"rank {rank}: {_name(work)}, {len(corners):,} times")
    return element("path", title, d="".join(corners), class_=f"part-{_part(work)}")
