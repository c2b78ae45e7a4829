"""Published sweeps, each searched after another one, as docs/tuning.md shows them.

python benchmarks/transfer.py [docs]
"""

import os
import sys
import time
from pathlib import Path

from between import put

from strategist import api
from strategist.report.reference.markdown import bullets, prose, table
from strategist.report.transfer_benchmark import LEGEND, TITLES, cells


def main() -> None:
    """Prints the table, or writes it."""
    begin = time.perf_counter()
    found = api.transfer(on_pair=lambda name, done, count: print(f"{done} of {count}: {name}", file=sys.stderr))
    minutes = (time.perf_counter() - begin) / 60
    shown = table(TITLES, [cells(item) for item in found.saved])
    if len(sys.argv) < 2:
        print(shown)
        return
    pairs = len({(item.before, item.sweep) for item in found.transfers})
    introduction = f"{pairs} pairs of sweeps; this took {minutes:.0f} minutes on {os.cpu_count()} cores."
    legend = bullets(f"**{name}**: {prose(text)}" for name, text in LEGEND)
    put(Path(sys.argv[1]) / "tuning.md", "transfer", "\n\n".join((introduction, shown, legend)))


if __name__ == "__main__":
    main()
