"""Prices against published measurements, as docs/figures.md, accuracy.md and accuracy.html show them; without a folder, printed.

python benchmarks/accuracy.py [docs docs/figures.md]
"""

import sys
from pathlib import Path

from between import put

from strategist import api
from strategist.accuracy.error_metrics import figures
from strategist.accuracy.largest_errors import worst
from strategist.accuracy.prediction_errors import Accuracy
from strategist.accuracy.reliability import reliability
from strategist.accuracy.stalled_steps import without_stalled
from strategist.report.accuracy import (
    GROUPS,
    LEGEND,
    TITLES,
    cells,
    interval_words,
    miss_words,
    row_reference,
    verdicts,
    with_verdicts,
)
from strategist.report.accuracy_page import WORST_ROWS, accuracy_page
from strategist.report.reference.markdown import bullets, page, prose, table


def main() -> None:
    """Prints the page of Markdown, or writes it beside that of HTML into a folder, and the table into docs/figures.md."""
    found = api.accuracy()
    text = markdown(found)
    if len(sys.argv) < 3:
        print(text)
        return
    docs, figures = Path(sys.argv[1]), Path(sys.argv[2])
    (docs / "accuracy.md").write_text(text, encoding="utf-8")
    (docs / "accuracy.html").write_text(accuracy_page(found), encoding="utf-8")
    put(figures, "accuracy", sources(found))


def sources(found: Accuracy) -> str:
    """The table of all sources and of all rows."""
    rows = [(source.name, *cells(source)) for source in found.sources]
    rows += [("**all, by rows**", *cells(found.overall)), ("**all, by sources**", *cells(found.mean_of_sources))]
    return table(("source", *TITLES), rows)


RELIABILITY = (
    "Runs by the predicted probability that a device's memory suffices, and the share of them that ran: of all rows, and as the"
    " mean of the sources. Published tables hold far more runs that ran than runs that failed: the share of a low range says"
    " little of new layouts, that of a high range is what plans rely on."
)


def reliability_table(found: Accuracy) -> str:
    """How many runs ran, by the probability that they fit."""
    cells = (
        (f"{item.low:.0%} to {item.high:.0%}", f"{item.rows:,}", _share(item.ran), _share(item.by_source))
        for item in reliability(found.priced_cases)
    )
    return table(("probability", "rows", "ran", "mean of sources"), cells)


STALLED = (
    "Some published steps took many times as long as their layout explains: they waited for a network or a busy machine"
    " ([cost model](cost-model.md)). A mixture of two distributions separates them from the other rows of their source. This table"
    " has the figures without them. A row counts as stalled by its published time alone, so the figures do not predict stalls."
)


def stalled_table(found: Accuracy) -> str:
    """Figures of the sources in which steps stalled, and of all rows, without the rows that did."""
    groups = {source.name: [item for item in found.priced_cases if item.case.row.file == source.name] for source in found.sources}
    rows = []
    for name, judged in (*groups.items(), ("**all, by rows**", found.priced_cases)):
        before, kept = figures(name, judged), figures(name, without_stalled(judged))
        if stalled := before.step_time_rows - kept.step_time_rows:
            errors = (kept.step_time_median_ape, kept.top1_regret, kept.top1_regret_worst)
            rows.append((name, f"{before.step_time_rows:,}", f"{stalled / before.step_time_rows:.1%}", *map(_percent, errors)))
    return table(("source", "timed rows", "stalled", "median", "regret", "worst"), rows)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def markdown(found: Accuracy) -> str:
    """The whole page."""
    overall = found.overall
    intro = (
        f"{overall.rows_used:,} published training runs of {len(found.sources)} sources, each priced by the code that plans, in"
        " sample: calibrations have seen these rows ([sources and devices that they have not](unseen.md));"
        f" {overall.rows_skipped:,} more are skipped. `make accuracy` writes this page, [one with scatter plots](accuracy.html)"
        f" and the table of figures.md; `strategist accuracy --data FILE` does it for your own. {interval_words(overall)}"
    )
    blocks = ["# Predicted against published", intro.strip(), bullets(f"**{name}**: {prose(text)}" for name, text in LEGEND)]
    for name, title in GROUPS:
        rows = ((group.name, *cells(group)) for group in getattr(found, name))
        blocks += [f"## {title}", sources(found) if name == "sources" else table(("", *TITLES), rows)]
    blocks += ["## Without stalled steps", prose(STALLED), stalled_table(found)]
    judged = ((group.name, *map(str, verdicts(group))) for group in with_verdicts(found.sources))
    blocks += ["## Out of memory", table(("source", "hits", "misses", "false alarms", "passes"), judged)]
    blocks += ["## Probability that a run fits", prose(RELIABILITY), reliability_table(found)]
    skipped = ((f"{rows:,}", reason) for reason, rows in overall.skipped.items())
    blocks += ["## Skipped", table(("rows", "since"), skipped)]
    missed = (f"{prose(miss_words(miss))} ({row_reference(miss)})" for miss in worst(found.priced_cases, WORST_ROWS))
    return page(*blocks, "## Missed most", bullets(missed))


if __name__ == "__main__":
    main()
