"""Accuracy of prices against published measurements, as a self-contained HTML page with a plot per source."""

from collections.abc import Iterator, Sequence

from strategist.accuracy.error_metrics import Figures
from strategist.accuracy.largest_errors import Miss, misses, worst
from strategist.accuracy.prediction_errors import Accuracy
from strategist.report.accuracy import (
    GROUPS,
    LEGEND,
    TITLES,
    case_words,
    cells,
    figure_words,
    interval_words,
    row_reference,
    verdicts,
    with_verdicts,
)
from strategist.report.page.frame import Section, document
from strategist.report.page.html import Html, element, join
from strategist.report.page.plot import Mark, diagonal, equal_scale, plot
from strategist.report.page.tables import pairs, table
from strategist.units import GIB

WORST_ROWS = 10
BAND = 0.2
"""Half the width of the band around the diagonal, as a share of the published value."""

PLOTS = (("step_seconds", "Step time", 1.0, "s"), ("peak_memory_bytes", "Peak memory", GIB, "GiB"))
"""Plotted quantities: name, heading, size of the unit, and unit of the axes."""


def accuracy_page(accuracy: Accuracy) -> str:
    """The page: figures by source, device and family, verdicts on memory, plots, and the largest errors."""
    title, overall = "Predicted against published", accuracy.overall
    introduction = (
        f"{overall.rows_used:,} published training runs of {len(accuracy.sources)} sources, each priced as a plan would be; "
        f"{overall.rows_skipped:,} more are skipped. {interval_words(overall)}"
    )
    return document(title, join([element("h1", title), element("p", introduction)]), list(_sections(accuracy)))


def _sections(accuracy: Accuracy) -> Iterator[Section]:
    (_, sources), *others = GROUPS
    yield Section(title=sources, introduction="", body=_sources(accuracy))
    for figure, title, size, unit in PLOTS:
        introduction = f"The line is equality, the band {BAND:.0%} to either side; point at a dot for its row."
        yield Section(title=title, introduction=introduction, body=_plots(accuracy, figure, title, size, unit))
    yield Section(
        title="Out of memory",
        introduction="Lines say what happened, columns what was predicted.",
        body=element("div", *map(_matrix, with_verdicts(accuracy.sources)), class_="matrices"),
    )
    for name, title in others:
        rows = ((figures.name, *cells(figures)) for figures in getattr(accuracy, name))
        yield Section(title=title, introduction="", body=table(f"Figures by {title.lower()}", ("", *TITLES), rows))
    reasons = ((f"{rows:,}", reason) for reason, rows in accuracy.overall.skipped.items())
    skipped = table("Rows that no plan can represent", ("rows", "since"), reasons, words=(1,))
    yield Section(title="Skipped", introduction="", body=skipped)
    yield Section(title="Missed most", introduction="", body=_worst(accuracy))


def _sources(accuracy: Accuracy) -> Html:
    rows = ((source.name, *cells(source)) for source in accuracy.sources)
    totals = (("all, by rows", *cells(accuracy.overall)), ("all, by sources", *cells(accuracy.mean_of_sources)))
    return join([pairs(LEGEND), table("Figures by source, and of all", ("", *TITLES), (*rows, *totals))])


def _matrix(figures: Figures) -> Html:
    hits, missed, alarms, passes = (f"{rows:,}" for rows in verdicts(figures))
    f1 = "" if figures.oom_f1 is None else f", F1 {figures.oom_f1:.3f}"
    return table(
        f"{figures.name}{f1}", ("", "does not fit", "fits"), (("ran out", hits, missed), ("ran", alarms, passes))
    )  # fmt: skip


def _plots(accuracy: Accuracy, figure: str, title: str, size: float, unit: str) -> Html:
    """A plot for each source that has the quantity."""
    plots = []
    for source in accuracy.sources:
        rows = (item for item in accuracy.priced_cases if item.case.row.file == source.name)
        if source_misses := [miss for item in rows for miss in misses(item) if miss.figure == figure]:
            plots.append(_plot(source.name, title, source_misses, size, unit))
    return element("div", *plots, class_="plots")


def _plot(source: str, title: str, row_misses: Sequence[Miss], size: float, unit: str) -> Html:
    """One plot. Values that are not positive have no place on a logarithmic axis and are drawn at its lower end."""
    known = [value / size for miss in row_misses for value in (miss.published, miss.predicted) if value > 0] or [1.0]
    scale = equal_scale(known, (f"published, {unit}", f"predicted, {unit}"), lambda value: f"{value:g}")
    lowest = scale.x.low
    dots = [
        Mark(x=max(miss.published / size, lowest), y=max(miss.predicted / size, lowest), text=_row(miss)) for miss in row_misses
    ]
    caption = f"{sum(abs(miss.ratio - 1) <= BAND for miss in row_misses):,} of {len(row_misses):,} within {BAND:.0%}"
    picture = plot(f"{title}, predicted against published, {source}: {caption}", scale, dots, under=[diagonal(scale, BAND)])
    return element("figure", picture, element("figcaption", element("b", source), f" {caption}"))


def _row(miss: Miss) -> str:
    return f"{miss.priced_case.case.row.row_id}: {case_words(miss)}; {figure_words(miss)}"


def _worst(accuracy: Accuracy) -> Html:
    rows = (
        (f"{miss.ratio:.2g}", figure_words(miss), case.row.model, case.cluster.name, case_words(miss), row_reference(miss))
        for miss in worst(accuracy.priced_cases, WORST_ROWS)
        for case in (miss.priced_case.case,)
    )
    head = ("predicted / published", "figure", "model", "GPUs", "layout", "row")
    return table(f"The {WORST_ROWS} rows with the largest errors", head, rows, words=range(1, len(head)))
