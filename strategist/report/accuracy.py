"""Accuracy of prices against published measurements, as terminal tables and as JSON."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from strategist.accuracy.error_metrics import Figures
from strategist.accuracy.largest_errors import Miss, worst
from strategist.accuracy.prediction_errors import Accuracy
from strategist.contract.codec import added
from strategist.frozen import frozen
from strategist.report.setting_text import candidate_words, percent
from strategist.report.text_blocks import bullets, columns, grouped, heading, pairs, section
from strategist.units import show_bytes, show_seconds

TITLES = ("rows", "skip", "time", "median", "bias", "rank", "regret", "worst", "memory", "F1")
"""Columns of every table of figures."""

LEGEND = (
    ("rows, skip", "published rows that are priced, and that are not"),
    ("time", "mean error of the step time, as a share of the published one; median: of the same errors"),
    ("bias", "mean of predicted / published - 1: below zero we are too fast"),
    ("rank", "rank correlation of the step times of layouts that differ in nothing else"),
    ("regret", "what the layout that we would pick takes longer than the best one published: median, and the worst"),
    ("memory", "mean error of the peak memory of a device"),
    (
        "F1",
        "of the verdict that a layout runs out of memory: hits ran out as predicted, misses ran out unpredicted, false alarms ran",
    ),
)

GROUPS = (("sources", "Sources"), ("devices", "Devices"), ("families", "Families of models"))
"""Groups of an :class:`Accuracy`, with their headings."""


@frozen
class ShownMiss:
    """A published row with a large error, and its place."""

    row_id: str
    file: str
    line: int
    model: str
    gpus: str
    layout: str
    figure: str
    predicted: float
    published: float
    ratio: float


@frozen
class AccuracyDocument:
    """Errors of prices against published runs, as fractions. ``mean_of_sources`` weighs sources equally, the other figures weigh
    rows equally.
    """

    sources: tuple[Figures, ...]
    devices: tuple[Figures, ...]
    families: tuple[Figures, ...]
    overall: Figures
    mean_of_sources: Figures
    worst: tuple[ShownMiss, ...] = added(())


def accuracy_document(accuracy: Accuracy, count: int = 0) -> AccuracyDocument:
    """The figures, with the ``count`` rows with the largest errors."""
    return AccuracyDocument(
        sources=accuracy.sources, devices=accuracy.devices, families=accuracy.families, overall=accuracy.overall,
        mean_of_sources=accuracy.mean_of_sources, worst=tuple(map(_shown_miss, worst(accuracy.priced_cases, count))),
    )  # fmt: skip


def _shown_miss(miss: Miss) -> ShownMiss:
    row = miss.priced_case.case.row
    return ShownMiss(
        row_id=row.row_id, file=row.file, line=row.line, model=row.model, gpus=miss.priced_case.case.cluster.name,
        layout=case_words(miss), figure=miss.figure, predicted=miss.predicted, published=miss.published, ratio=miss.ratio,
    )  # fmt: skip


@grouped
def accuracy_report(accuracy: Accuracy, count: int = 0) -> Iterator[RenderableType]:
    """A line per source, device and family, and for all rows; out-of-memory verdicts; reasons for skipped rows; the largest
    errors.
    """
    totals = f"{accuracy.overall.rows_used:,} rows of {len(accuracy.sources)} sources, {accuracy.overall.rows_skipped:,} skipped"
    yield Text.assemble(("Predicted against published", "bold"), f"  {totals}")
    for name, title in GROUPS:
        yield section(heading(title), _table(getattr(accuracy, name)))
    yield section(heading("In all"), _table((accuracy.overall, accuracy.mean_of_sources), ("by rows", "by sources")))
    if coverage := interval_words(accuracy.overall):
        yield Text(f"  {coverage}")
    if judged := with_verdicts(accuracy.sources):
        yield section(heading("Out of memory"), _verdicts(judged))
    if accuracy.overall.skipped:
        reasons = (f"{rows:,}: {reason}" for reason, rows in accuracy.overall.skipped.items())
        yield section(heading("Skipped", "rows, since"), bullets(reasons))
    if count:
        missed = [f"{miss_words(miss)} ({row_reference(miss)})" for miss in worst(accuracy.priced_cases, count)]
        yield section(heading("Missed most"), bullets(missed, mark="1"))
    yield section(heading("Columns"), pairs(LEGEND))


def _table(groups: Sequence[Figures], names: Sequence[str] = ()) -> Table:
    named = zip(names or [figures.name for figures in groups], groups, strict=True)
    return columns("", *TITLES, rows=((_with_spaces(name), *cells(figures)) for name, figures in named), wrap=[""])


def _with_spaces(name: str) -> str:
    """A file's stem with spaces, so that it can wrap."""
    return name.replace("_", " ")


def cells(figures: Figures) -> tuple[str, ...]:
    """Figures in the order of ``TITLES``; a dash for a missing one."""
    rank = "-" if figures.spearman is None else f"{figures.spearman:.2f}"
    f1 = "-" if figures.oom_f1 is None else f"{figures.oom_f1:.2f}"
    time = (_share(figures.step_time_mape), _share(figures.step_time_median_ape), _share(figures.step_time_bias, signed=True))
    regret = (_share(figures.top1_regret), _share(figures.top1_regret_worst))
    return f"{figures.rows_used:,}", f"{figures.rows_skipped:,}", *time, rank, *regret, _share(figures.peak_memory_mape), f1


def _share(share: float | None, *, signed: bool = False) -> str:
    return "-" if share is None else ("+" if signed and share > 0 else "") + percent(share)


VERDICTS = ("hits", "misses", "false alarms", "passes")


def with_verdicts(groups: Sequence[Figures]) -> list[Figures]:
    """Groups with a row that ran out of memory or was predicted to."""
    confusions = ((figures, figures.oom_confusion) for figures in groups)
    return [figures for figures, confusion in confusions if confusion.hits + confusion.misses + confusion.false_alarms]


def verdicts(figures: Figures) -> tuple[int, ...]:
    """Number of rows with each verdict, in the order of ``VERDICTS``."""
    confusion = figures.oom_confusion
    return confusion.hits, confusion.misses, confusion.false_alarms, confusion.passes


def _verdicts(groups: Sequence[Figures]) -> Table:
    rows = ((_with_spaces(figures.name), *(f"{count:,}" for count in verdicts(figures))) for figures in groups)
    return columns("", *VERDICTS, rows=rows, wrap=[""])


def interval_words(figures: Figures) -> str:
    """Coverage of the predicted intervals, in words; empty without intervals."""
    if figures.interval_coverage is None:
        return ""
    return f"The predicted interval holds {percent(figures.interval_coverage)} of {figures.interval_rows:,} published step times."


def case_words(miss: Miss) -> str:
    """Layout and batch of a row."""
    case = miss.priced_case.case
    candidate = case.candidate
    batch = f"{candidate.knobs.micro_batch}x{case.accumulation}"
    return f"{candidate_words(candidate)}, batch {batch}, recompute {candidate.knobs.recompute}"


def figure_words(miss: Miss) -> str:
    """A prediction beside its measurement: ``step time 1.2 s, published 1.5 s``."""
    name, show = FIGURES[miss.figure]
    return f"{name} {show(miss.predicted)}, published {show(miss.published)}"


FIGURES = {"step_seconds": ("step time", show_seconds), "peak_memory_bytes": ("peak memory", show_bytes)}
"""Predicted quantities: their name, and how values are shown."""


def miss_words(miss: Miss) -> str:
    """One row with a large error, on one line."""
    case = miss.priced_case.case
    return f"{case.row.model} on {case.cluster.name}, {case_words(miss)}: {figure_words(miss)}, {miss.ratio:.2g} times"


def row_reference(miss: Miss) -> str:
    """Id, file and line of the row."""
    row = miss.priced_case.case.row
    return f"{row.row_id or 'no id'}, {row.file}.csv:{row.line}"
