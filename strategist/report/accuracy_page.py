"""Accuracy of prices against published measurements: a self-contained HTML page with a plot a source."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from strategist.accuracy.error_metrics import Figures
from strategist.accuracy.largest_errors import Miss, misses, worst
from strategist.accuracy.measure import Accuracy
from strategist.report.accuracy import (
    GROUPS,
    LEGEND,
    TITLES,
    case_words,
    cells,
    figure_words,
    interval_words,
    place,
    verdicts,
    with_verdicts,
)
from strategist.report.scatter import BAND, Point, scatter
from strategist.units import GIB

WORST = 10
PLOTS = (("step_seconds", "Step time", 1.0, "s"), ("peak_memory_bytes", "Peak memory", GIB, "GiB"))
"""What is plotted: the figure, its heading, and the unit of the axes."""

_STYLE = Path(__file__).with_name("page.css")


def accuracy_page(found: Accuracy) -> str:
    """The page: figures by source, device and family, verdicts on memory, plots, and the rows that are missed most."""
    style = _STYLE.read_text(encoding="utf-8")
    body = "\n".join(_sections(found))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="generator" content="strategist">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Predicted against published</title>\n<style>\n{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _sections(found: Accuracy) -> Iterator[str]:
    overall = found.overall
    yield "<header><h1>Predicted against published</h1>"
    yield f"<p>{overall.rows_used:,} published training runs of {len(found.sources)} sources, each priced as a plan would be; "
    yield f"{overall.rows_skipped:,} more are skipped. {interval_words(overall)}</p></header>"
    sections = _parts(found)
    items = "".join(f'<li><a href="#{_anchor(title)}">{title}</a></li>' for title in sections)
    yield f'<nav aria-label="On this page"><ul>{items}</ul></nav>\n<main>'
    for title, parts in sections.items():
        yield f'<section id="{_anchor(title)}">\n<h2>{title}</h2>'
        yield from parts
        yield "</section>"
    yield "</main>"


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def _parts(found: Accuracy) -> dict[str, Iterator[str]]:
    """What stands under each heading."""
    (_, sources), *others = GROUPS
    return {
        sources: _sources(found),
        **{plot[1]: _plots(found, *plot) for plot in PLOTS},
        "Out of memory": _matrices(found.sources),
        **{title: _groups(title, getattr(found, name)) for name, title in others},
        "Skipped": _skipped(found.overall),
        "Missed most": _worst(found),
    }


def _sources(found: Accuracy) -> Iterator[str]:
    yield "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in LEGEND) + "</dl>"
    rows = ((source.name, *cells(source)) for source in found.sources)
    together = (("all, by rows", *cells(found.overall)), ("all, by sources", *cells(found.mean_of_sources)))
    yield _table("Figures by source, and of all", ("", *TITLES), (*rows, *together), words=0)


def _groups(title: str, groups: Sequence[Figures]) -> Iterator[str]:
    rows = ((figures.name, *cells(figures)) for figures in groups)
    yield _table(f"Figures by {title.lower()}", ("", *TITLES), rows, words=0)


def _skipped(overall: Figures) -> Iterator[str]:
    reasons = ((f"{rows:,}", reason) for reason, rows in overall.skipped.items())
    yield _table("Rows that no plan can stand for", ("rows", "since"), reasons, words=1)


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, words: int) -> str:
    """A table whose column number ``words`` is text."""
    tops = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "\n".join(f"<tr>{''.join(_cell(text, index, words) for index, text in enumerate(row))}</tr>" for row in rows)
    return (
        f'<div class="wide" role="region" aria-label="{escape(title)}" tabindex="0"><table><caption>{escape(title)}</caption>\n'
        f"<thead><tr>{tops}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _cell(text: str, index: int, words: int) -> str:
    if index == words == 0:
        return f'<th scope="row">{escape(text)}</th>'
    return f'<td class="words">{escape(text)}</td>' if index >= words > 0 else f"<td>{escape(text)}</td>"


def _matrices(sources: Sequence[Figures]) -> Iterator[str]:
    """What happened against what was predicted, for each source in which something ran out of memory or was said to."""
    yield "<p>Lines say what happened, columns what was predicted.</p>"
    yield '<div class="matrices">'
    for figures in with_verdicts(sources):
        hits, missed, alarms, passes = (f"{rows:,}" for rows in verdicts(figures))
        f1 = "" if figures.oom_f1 is None else f", F1 {figures.oom_f1:.3f}"
        rows = (("ran out", hits, missed), ("ran", alarms, passes))
        yield _table(f"{figures.name}{f1}", ("", "does not fit", "fits"), rows, words=0)
    yield "</div>"


def _plots(found: Accuracy, figure: str, title: str, size: float, unit: str) -> Iterator[str]:
    """A plot for each source that has the figure."""
    yield f"<p>The line is equality, the band {BAND:.0%} to either side; point at a dot for its row.</p>"
    yield '<div class="plots">'
    for source in found.sources:
        rows = (item for item in found.judged if item.case.row.file == source.name)
        own = [miss for item in rows for miss in misses(item) if miss.figure == figure]
        if own:
            yield _plot(source.name, title, own, size, unit)
    yield "</div>"


def _plot(source: str, title: str, own: Sequence[Miss], size: float, unit: str) -> str:
    near = sum(abs(miss.ratio - 1) <= BAND for miss in own)
    points = [Point(published=miss.published / size, predicted=miss.predicted / size, text=_row(miss)) for miss in own]
    said = f"{near:,} of {len(own):,} within {BAND:.0%}"
    picture = scatter(points, f"{title}, predicted against published, {source}: {said}", unit)
    return f"<figure>{picture}<figcaption><b>{escape(source)}</b> {said}</figcaption></figure>"


def _row(miss: Miss) -> str:
    return f"{miss.judged.case.row.row_id}: {case_words(miss)}; {figure_words(miss)}"


def _worst(found: Accuracy) -> Iterator[str]:
    rows = (
        (
            f"{miss.ratio:.2g}",
            figure_words(miss),
            miss.judged.case.row.model,
            miss.judged.case.cluster.name,
            case_words(miss),
            place(miss),
        )
        for miss in worst(found.judged, WORST)
    )
    head = ("predicted / published", "figure", "model", "GPUs", "layout", "row")
    yield _table(f"The {WORST} rows whose worse figure is missed most", head, rows, words=1)
