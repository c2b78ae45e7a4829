"""A replay benchmark as a report and as a plot."""

import math
import statistics
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from strategist.contract.replay import CLOSE, START_SECONDS, STEPS, ReplayDocument, Summary
from strategist.report.page.html import element
from strategist.report.page.plot import HEIGHT, WIDTH, Scale, line, plot
from strategist.report.page.svg_file import COLOURS, svg_file
from strategist.report.plot_axes import Axis, LinearAxis
from strategist.report.text_blocks import columns, grouped, heading, pairs, section

TITLES = ("trials", "10 to 90 %", "by seed", "mean", "most", "failed", "device hours")
"""Columns of the table of samplers."""

LEGEND = (
    (
        "trials",
        f"until one was within {CLOSE:.0%} of the best row of its sweep: the median of all searches, the range that leaves a tenth"
        " of them on either side, the medians of single seeds, the mean, and the maximum",
    ),
    ("failed", "share of the trials that ran out of memory or crashed"),
    ("device hours", f"of a search, in the median: {STEPS} steps a trial and {START_SECONDS:.0f} s to start it"),
)

MAX_CURVE = 60
"""Number of trials in the plot."""


def replayed_plot(replay: ReplayDocument) -> str:
    """Regret of the best trial so far against the number of trials, median of all searches, as an SVG file."""
    series = {summary.sampler: _median_regret(replay, summary.sampler) for summary in replay.samplers}
    scale = Scale(
        x=Axis(low=1.0, high=max(2.0, *map(len, series.values())), length=WIDTH),
        y=LinearAxis(low=0.0, high=1.0, length=HEIGHT),
        names=("trials", "slower than the best row, median of all searches"),
        formats=(lambda trials: f"{trials:g}", lambda share: f"{share:.0%}"),
    )  # fmt: skip
    shapes = []
    for index, (sampler, regret) in enumerate(series.items()):
        points = [(trials, min(share, 1.0)) for trials, share in enumerate(regret, start=1)]
        css_class = f"curve-{index % len(COLOURS)}"
        shapes.append(line(scale, points, css_class, steps=True, text=sampler))
        shapes.append(element("text", sampler, x=WIDTH - 10, y=18 + 18 * index - HEIGHT, text_anchor="end", class_=css_class))
    return svg_file(plot("Best so far against trials", scale, (), under=shapes))


def cells(summary: Summary) -> tuple[str, ...]:
    """Figures in the order of ``TITLES``."""
    return (
        f"{summary.median_trials:g}", _range(*summary.tenth_to_ninth), _range(*summary.medians_by_seed),
        f"{summary.mean_trials:.1f}", f"{summary.most_trials}", f"{summary.failed_share:.0%}",
        f"{summary.median_device_hours:,.1f}",
    )  # fmt: skip


def _range(low: float, high: float) -> str:
    return f"{low:.0f}" if round(low) == round(high) else f"{low:.0f} to {high:.0f}"


def trials_of(replay: ReplayDocument, sweep: str) -> tuple[str, ...]:
    """Median number of trials of each sampler in a sweep."""
    return tuple(f"{statistics.median(_trials(replay, sweep, item.sampler)):g}" for item in replay.samplers)


@grouped
def replayed_report(replay: ReplayDocument) -> Iterator[RenderableType]:
    """A line per sampler, then a line per sweep."""
    rows = sum(sweep.rows for sweep in replay.sweeps)
    yield Text.assemble(("Published sweeps, searched again", "bold"), f"  {len(replay.sweeps)} sweeps of {rows:,} rows")
    samplers = ((summary.sampler, *cells(summary)) for summary in replay.samplers)
    yield section(heading("Samplers"), columns("sampler", *TITLES, rows=samplers))
    yield section(heading("Sweeps", "median trials by sampler"), _sweeps(replay))
    yield section(heading("Columns"), pairs(LEGEND))


def _sweeps(replay: ReplayDocument) -> Table:
    rows = ((sweep.name, str(sweep.rows), *trials_of(replay, sweep.name)) for sweep in replay.sweeps)
    return columns("sweep", "rows", *(item.sampler for item in replay.samplers), rows=rows, wrap=["sweep"])


def _trials(replay: ReplayDocument, sweep: str, sampler: str) -> list[int]:
    return [run.trials for run in replay.searches if (run.sweep, run.sampler) == (sweep, sampler)]


def _median_regret(replay: ReplayDocument, sampler: str) -> Sequence[float]:
    """Median regret after each trial; searches that have ended keep their last value."""
    searches = [run for run in replay.searches if run.sampler == sampler]
    regrets = [[math.inf if share is None else share for share in run.regret] for run in searches]
    longest = min(max(map(len, regrets)), MAX_CURVE)
    return [statistics.median(regret[min(trial, len(regret) - 1)] for regret in regrets) for trial in range(longest)]
