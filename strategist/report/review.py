"""Text of a review of another system's file."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from strategist.contract.estimate import Fit
from strategist.contract.knobs import show_value
from strategist.contract.review import Change, Review
from strategist.report.findings import text_lines
from strategist.report.plan import figures
from strategist.report.setting_text import change_words, gib, percent
from strategist.report.text_blocks import bullets, grouped, heading, pairs, section
from strategist.units import show_seconds

NEAR_TIE = 0.04
"""Share of a step below which plans count as equally fast (docs/design.md, margins)."""

MAX_CHANGES, MAX_UNCERTAINTIES = 8, 2
"""Number of changes shown, and of uncertainties named by the verdict."""


@grouped
def review_report(review: Review) -> Iterator[RenderableType]:
    """The plan that the file describes, its findings, better settings, and the best plan."""
    yield heading(verdict(review), review.format)
    if review.findings:
        yield section(heading("Findings"), *map(Text, text_lines(review.findings)))
    if review.plan is not None:
        plan = review.plan
        yield section(heading("What it describes", change_words(plan)), pairs(figures(plan)))
    if changes := [change for change in review.changes if change.expressible][:MAX_CHANGES]:
        yield section(heading("What one change would bring"), pairs(map(_change, changes)))
    if review.best is not None:
        yield section(heading("The best that this format can say"), *_best(review))


def verdict(review: Review) -> str:
    """The verdict in one or two sentences."""
    if review.plan is None:
        return "It cannot run: its settings break a law."
    if review.broken:
        return f"It cannot run as it is: {review.broken.message}."
    estimate = review.plan.estimate
    sizes = f"{gib(estimate.peak_memory_bytes)} of {gib(estimate.capacity_bytes)} GiB a device"
    step = f"a step is expected to take {show_seconds(estimate.step_seconds)}"
    probability = f"probability {percent(estimate.shown_confidence)}"
    match review.fit:
        case Fit.FITS:
            return f"It fits: {sizes}, {probability}; {step}."
        case Fit.TIGHT:
            return f"It is tight: {sizes}, {probability}; {step}."
        case Fit.UNKNOWN:
            return f"Cannot tell whether it fits: {sizes} as priced; {'; '.join(review.uncertainties[:MAX_UNCERTAINTIES])}."
    return f"It would run out of memory: {sizes}, {probability} that it fits."


def _change(change: Change) -> tuple[str, str]:
    cards = f"; {', '.join(change.cards)}" if change.cards else ""
    return f"{change.setting} = {show_value(change.value)}", f"{change.text}{cards}"


def _best(review: Review) -> Iterator[RenderableType]:
    if review.best is None:
        return
    seconds, faster = review.best.estimate.step_seconds, ""
    if review.plan is not None and review.fits:
        ratio = review.plan.estimate.step_seconds / seconds
        if ratio < 1 + NEAR_TIE:
            yield bullets(["None is faster by more than a near tie."])
            return
        faster = f", {ratio:.2f} times as fast"
    yield bullets([f"{change_words(review.best)}: {show_seconds(seconds)} a step{faster}"])
