"""The simulated step: a row per pipeline rank, a box per pass of one micro-batch over one stage."""

from collections.abc import Callable, Iterator, Sequence
from statistics import median

from strategist.contract.report import Span, Timeline
from strategist.report.page.html import Html, element, empty, join
from strategist.report.page.tables import swatch
from strategist.report.plan import PART_NAMES
from strategist.report.plot_axes import round_steps
from strategist.report.setting_text import counted, percent
from strategist.units import show_seconds

MIN_WIDTH, MAX_WIDTH, ROW_HEIGHT, GAP, LEFT_MARGIN, BOTTOM_MARGIN = 900.0, 12000.0, 20.0, 5.0, 52.0, 22.0
"""Pixels. The picture is as wide as its numbers need, from MIN_WIDTH to MAX_WIDTH, and scrolls; an overview is above it then."""

MIN_TICK_DISTANCE = 120.0

MIN_NUMBERED_WIDTH = 14.0
"""Least width of boxes with the number of their micro-batch."""

MAX_TITLED_BOXES = 4000
"""Number of boxes up to which each has a tooltip; beyond, boxes of one kind on a rank are one shape."""


def timeline(simulated: Timeline) -> Html:
    """The picture, its legend, and the waiting time of each rank."""
    kinds = list(dict.fromkeys(span.work for span in simulated.spans))
    legend = element("ul", *(element("li", swatch(_part(work)), _name(work)) for work in kinds), class_="key")
    waiting = element("p", _waiting_sentence(simulated), class_="note") if len(simulated.bubble_seconds) > 1 else Html()
    width = _width(simulated)
    overview = _picture(simulated, MIN_WIDTH, _shapes) if width > MIN_WIDTH else Html()
    boxes = _boxes if len(simulated.spans) <= MAX_TITLED_BOXES else _shapes
    name = "Timeline, with numbers" if overview else "Timeline"
    picture = element("div", _picture(simulated, width, boxes), class_="wide scroll", tabindex="0", role="region", aria_label=name)
    return join([overview, picture, legend, waiting])


def _waiting_sentence(simulated: Timeline) -> str:
    shares = [max(seconds, 0.0) / simulated.step_seconds for seconds in simulated.bubble_seconds]
    most_idle, least_idle = (pick(range(len(shares)), key=shares.__getitem__) for pick in (max, min))
    longest = f"{percent(shares[most_idle])} on rank {most_idle}"
    return f"Waiting takes {percent(shares[least_idle])} of {_subject(simulated)} on rank {least_idle}, {longest}."


def _subject(simulated: Timeline) -> str:
    return "the step" if simulated.rounds == 1 else f"the last of {simulated.rounds} rounds of the step"


def _part(work: str) -> str:
    return work.replace(" ", "-")


def _name(work: str) -> str:
    return PART_NAMES.get(work, work)


def _width(simulated: Timeline) -> float:
    """Width at which the shortest passes have room for their numbers; the width of a screen if there are too many passes."""
    kinds: dict[str, list[float]] = {}
    for span in simulated.spans:
        if span.micro_batch is not None:
            kinds.setdefault(span.work, []).append(span.end_seconds - span.start_seconds)
    shortest = min((median(passes) for passes in kinds.values()), default=0.0)
    width = MIN_NUMBERED_WIDTH * simulated.step_seconds / shortest if shortest > 0 else 0.0
    return max(width, MIN_WIDTH) if width <= MAX_WIDTH else MIN_WIDTH


def _picture(simulated: Timeline, width: float, boxes: Callable[[Timeline, float], Iterator[Html]]) -> Html:
    ranks = len(simulated.bubble_seconds)
    height = ranks * (ROW_HEIGHT + GAP)
    label = (
        f"{_subject(simulated).capitalize()} of {counted(ranks, 'pipeline rank')} with {simulated.micro_batches} micro-batches"
        f"{', schedule ' + simulated.schedule if simulated.schedule else ''}: {show_seconds(simulated.step_seconds)}"
    )
    scale = width / simulated.step_seconds
    parts = join([*_frame(simulated, scale, height), *boxes(simulated, scale)])
    view_box = f"{-LEFT_MARGIN:g} 0 {LEFT_MARGIN + width + 24:.0f} {height + BOTTOM_MARGIN:g}"
    picture_width = round(LEFT_MARGIN + width + 24)
    return element("svg", parts, viewBox=view_box, role="img", aria_label=label, class_="timeline", width=str(picture_width))


def _frame(simulated: Timeline, scale: float, height: float) -> Iterator[Html]:
    """Rows with their rank, and seconds below; ``scale`` is the width of a second."""
    width = scale * simulated.step_seconds
    for rank in range(len(simulated.bubble_seconds)):
        y = rank * (ROW_HEIGHT + GAP)
        yield empty("rect", x=0, y=y, width=width, height=ROW_HEIGHT, class_="idle")
        yield element("text", f"rank {rank}", x=-6, y=y + ROW_HEIGHT / 2 + 4, text_anchor="end")
    for seconds in round_steps(simulated.step_seconds, int(width / MIN_TICK_DISTANCE)):
        x = seconds * scale
        yield empty("path", d=f"M{x:.1f} {height:g}v5", class_="grid")
        yield element("text", show_seconds(seconds) if seconds else "0", x=x, y=height + 17, text_anchor="middle")


def _boxes(simulated: Timeline, scale: float) -> Iterator[Html]:
    for span in simulated.spans:
        x, box_width = span.start_seconds * scale, (span.end_seconds - span.start_seconds) * scale
        y = span.rank * (ROW_HEIGHT + GAP)
        title = element("title", _span_text(span))
        yield element(
            "rect", title, x=x, y=y, width=max(box_width - 0.4, 0.2), height=ROW_HEIGHT, class_=f"part-{_part(span.work)}"
        )
        if span.micro_batch is not None and box_width >= MIN_NUMBERED_WIDTH * 0.99:
            yield element(
                "text", str(span.micro_batch), x=x + box_width / 2, y=y + ROW_HEIGHT / 2 + 4, text_anchor="middle", class_="number"
            )


def _span_text(span: Span) -> str:
    duration = f"{show_seconds(span.end_seconds - span.start_seconds)}, from {show_seconds(span.start_seconds)} on"
    if span.stage is None:
        return f"rank {span.rank}: {_name(span.work)}, {duration}"
    return f"rank {span.rank}: {span.work} of micro-batch {span.micro_batch}, stage {span.stage}: {duration}"


def _shapes(simulated: Timeline, scale: float) -> Iterator[Html]:
    """Thousands of boxes as one path per rank and kind of action."""
    shapes: dict[tuple[int, str], list[str]] = {}
    for span in simulated.spans:
        x, box_width = span.start_seconds * scale, (span.end_seconds - span.start_seconds) * scale
        width = max(box_width - 0.2, 0.1)
        rectangle = f"M{x:.1f} {span.rank * (ROW_HEIGHT + GAP):g}h{width:.1f}v{ROW_HEIGHT:g}h-{width:.1f}z"
        shapes.setdefault((span.rank, span.work), []).append(rectangle)
    for (rank, work), rectangles in shapes.items():
        yield _shape(rank, work, rectangles)


def _shape(rank: int, work: str, rectangles: Sequence[str]) -> Html:
    title = element("title", f"rank {rank}: {_name(work)}, {len(rectangles):,} times")
    return element("path", title, d="".join(rectangles), class_=f"part-{_part(work)}")
