"""Text of a review of another system's file."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from strategist.contract.diagnostic import Diagnostic, Level
from strategist.contract.estimate import Fit
from strategist.contract.knobs import show_value
from strategist.contract.review import Change, Review
from strategist.report.findings import text_lines
from strategist.report.plan import figures
from strategist.report.setting_text import change_words, gib, percent
from strategist.report.text_blocks import bullets, heading, pairs, section, selected_blocks
from strategist.units import show_seconds

NEAR_TIE = 0.04
"""Share of a step below which plans count as equally fast (docs/design.md, margins)."""

MAX_FINDINGS, MAX_NAMES, MAX_CHANGES, MAX_UNCERTAINTIES = 5, 4, 3, 2
"""Number of findings, of entries in one of them and of changes on the screen, and of uncertainties that the verdict names."""

MAX_CHARACTERS, MIN_CHARACTERS = 155, 90
"""Length at which the screen cuts a finding off, and length of a message that its advice does not shorten."""

LEVELS = (Level.ERROR, Level.WARNING, Level.INFO)
OPEN_MEMORY_CODE = "FMT-010"
"""Code of findings on memory that the verdict states (strategist/formats/finding_codes.py)."""

NAMED = {"FMT-001": "unknown names", "FMT-009": "names without a price"}
"""Codes whose findings the screen joins: all say the same of an entry each."""


def review_report(review: Review, names: Collection[str] = ()) -> Group:
    """The verdict, and the most important findings and changes on one screen; or whole sections with these ``names``."""
    blocks = [heading(verdict(review), review.format)]
    if names:
        return Group(*blocks, *selected_blocks(SECTIONS, names, review))
    return Group(*blocks, *_findings_on_screen(review), *_description(review), *_changes(review, MAX_CHANGES), *_best(review))


def _findings_on_screen(review: Review) -> Iterator[RenderableType]:
    """The most serious findings, each shortened, and the number of others by code. The verdict states those on memory."""
    findings = [item for item in review.findings if item.code != OPEN_MEMORY_CODE]
    if not findings:
        return
    named = [line for code, text in NAMED.items() if (line := _named_entries(findings, code, text))]
    others = sorted((item for item in findings if item.code not in NAMED), key=lambda item: LEVELS.index(item.level))
    count = MAX_FINDINGS - len(named)
    lines = [*map(_short_line, others[:count]), *named]
    if others[count:]:
        counts = Counter(item.code for item in others[count:])
        lines.append(f"and {', '.join(f'{number} x {code}' for code, number in counts.items())}")
    yield section(heading("Findings", "strategist check --show findings prints all, with their places"), *map(Text, lines))


def _named_entries(findings: Sequence[Diagnostic], code: str, text: str) -> str:
    """One line for all findings of a code, with names of their entries; empty without any."""
    same_code = [item for item in findings if item.code == code]
    entries = list(dict.fromkeys(item.entry or item.message for item in same_code))
    more = f" and {len(entries) - MAX_NAMES} more" if len(entries) > MAX_NAMES else ""
    return _shortened(f"{same_code[0].level} {code} {text}: {', '.join(entries[:MAX_NAMES])}{more}") if entries else ""


def _short_line(found: Diagnostic) -> str:
    """A finding without its file, and without the advice if it is only information; errors are whole."""
    position = f"line {found.line}: " if found.line else ""
    advice = "" if found.level is Level.INFO else f"; {found.do}"
    message = f"{position}{found.level} {found.code} {found.message}"
    if found.level is Level.ERROR:
        return message + advice
    return _shortened(_shortened(message, max(MAX_CHARACTERS - len(advice), MIN_CHARACTERS)) + advice)


def _shortened(text: str, limit: int = MAX_CHARACTERS) -> str:
    return text if len(text) <= limit else f"{text[: limit - 2].rstrip()} …"


def _findings(review: Review) -> Iterator[RenderableType]:
    if review.findings:
        yield section(heading("Findings"), *map(Text, text_lines(review.findings)))


def _description(review: Review) -> Iterator[RenderableType]:
    if review.plan is not None:
        yield section(heading("What it describes", change_words(review.plan)), pairs(figures(review.plan)))


def _changes(review: Review, limit: int | None = None) -> Iterator[RenderableType]:
    if changes := [change for change in review.changes if change.expressible]:
        more = f"{limit} of {len(changes)}: --show changes" if limit is not None and len(changes) > limit else ""
        yield section(heading("What one change would bring", more), pairs(map(_change, changes[:limit])))


def _best(review: Review) -> Iterator[RenderableType]:
    if review.best is not None:
        yield section(heading("The best plan that this format can express"), *_best_lines(review))


SECTIONS: dict[str, Callable[[Review], Iterator[RenderableType]]] = {
    "findings": _findings, "plan": _description, "changes": _changes, "best": _best,
}  # fmt: skip
"""Sections of a review by name."""


_PRICED_WORDS = {Fit.FITS: "does", Fit.TIGHT: "is tight", Fit.TOO_LARGE: "does not"}
"""Words for the verdict on the priced memory where that is open."""


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
            doubts = "; ".join(review.uncertainties[:MAX_UNCERTAINTIES])
            return f"Cannot tell whether it fits: as priced it {_PRICED_WORDS[review.priced_fit]} ({sizes}), but {doubts}."
    return f"It would run out of memory: {sizes}, {probability} that it fits."


def _change(change: Change) -> tuple[str, str]:
    cards = f"; {', '.join(change.cards)}" if change.cards else ""
    return f"{change.setting} = {show_value(change.value)}", f"{change.text}{cards}"


def _best_lines(review: Review) -> Iterator[RenderableType]:
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
