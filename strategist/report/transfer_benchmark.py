"""Transfer benchmark (searches that start from another study) as a report."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from strategist.contract.replay import CLOSE, FEW_DOUBLINGS, SEEN_BEFORE, TRIALS, Savings, TransferDocument
from strategist.report.text_blocks import columns, grouped, heading, pairs, section

TITLES = ("known of the source", "what changes", "pairs", *(f"after {seen}" for seen in SEEN_BEFORE))
"""Columns of the table."""

LEGEND = (
    ("known", "of the source of both sweeps before any trial: what the profiles say, or factors fitted to all other sources"),
    ("what changes", f"from the sweep before to this one; little is up to {2**FEW_DOUBLINGS:g} times as much or as little"),
    (
        "after",
        f"what was seen of the sweep before: nothing, the first {TRIALS} trials of a search of it, or all its rows; then the trials"
        f" until one was within {CLOSE:.0%} of the best: median, mean, most, and the share that failed",
    ),
)


def cells(item: Savings) -> tuple[str, ...]:
    """Figures in the order of ``TITLES``."""
    figures = zip(item.median_trials, item.mean_trials, item.most_trials, item.failed_shares, strict=True)
    after = (f"{median:g}, {mean:.1f}, {maximum}, {failed:.0%}" for median, mean, maximum, failed in figures)
    return item.start, f"{item.changed}, {'little' if item.near else 'much'}", str(item.pairs), *after


@grouped
def transfer_report(transfer: TransferDocument) -> Iterator[RenderableType]:
    """A line per start and kind of change."""
    yield Text.assemble(("Published sweeps, each searched after another one", "bold"), f"  {len(transfer.transfers)} searches")
    table = columns(*TITLES, rows=map(cells, transfer.saved), left=TITLES[:2])
    yield section(heading("Trials", "median, mean, most, failed"), table)
    yield section(heading("Columns"), pairs(LEGEND))
