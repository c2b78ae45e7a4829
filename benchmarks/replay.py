"""Published sweeps and one of our own searched again, as docs/tuning.md shows them.

python benchmarks/replay.py [docs]
"""

import os
import sys
import time
from pathlib import Path

from between import put

from strategist import api
from strategist.contract.replay import ReplayDocument
from strategist.paths import data_dir
from strategist.report.reference.markdown import bullets, prose, table
from strategist.report.replay import LEGEND, TITLES, cells, replayed_plot, trials_of

SEEDS = 5
OURS = data_dir("profiles") / "measurements" / "tiny-4xcpu-layouts.jsonl"


def main() -> None:
    """Prints the tables, or writes them with the plot."""
    begin = time.perf_counter()
    found = api.replay(seeds=SEEDS, on_sweep=lambda name, done, count: print(f"{done} of {count}: {name}", file=sys.stderr))
    minutes = (time.perf_counter() - begin) / 60
    own_measurements = api.replay(OURS, seeds=SEEDS)
    if len(sys.argv) < 2:
        print(samplers(found), sweeps(found), samplers(own_measurements), sep="\n\n")
        return
    docs = Path(sys.argv[1])
    (docs / "replay.svg").write_text(replayed_plot(found), encoding="utf-8")
    rows = sum(sweep.rows for sweep in found.sweeps)
    introduction = (
        f"{len(found.sweeps)} sweeps of {rows:,} rows, {SEEDS} seeds where a sampler leaves something to chance; this took"
        f" {minutes:.0f} minutes on {os.cpu_count()} cores."
    )
    legend = bullets(f"**{name}**: {prose(text)}" for name, text in LEGEND)
    put(docs / "tuning.md", "replay", "\n\n".join((introduction, samplers(found), legend, sweeps(found))))
    put(docs / "tuning.md", "gloo", samplers(own_measurements), "replay")


def samplers(found: ReplayDocument) -> str:
    """A line a sampler."""
    return table(("sampler", *TITLES), [(item.sampler, *cells(item)) for item in found.samplers])


def sweeps(found: ReplayDocument) -> str:
    """A line a sweep: median trials by sampler."""
    names = [item.sampler for item in found.samplers]
    rows = [(sweep.name, f"{sweep.rows}", *trials_of(found, sweep.name)) for sweep in found.sweeps]
    return table(("sweep", "rows", *names), rows)


if __name__ == "__main__":
    main()
