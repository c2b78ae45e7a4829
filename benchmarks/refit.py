"""Fits the shipped calibrations again: factors by software stack and device, to published rows outside the held-out groups.

python benchmarks/refit.py FOLDER [DEVICE ...]    only those devices, the others stay as they are
"""

import sys
from pathlib import Path

from strategist.accuracy.held_out import held_out
from strategist.accuracy.measure import read_cases
from strategist.accuracy.refit import memory_spreads, refit
from strategist.accuracy.row import read_rows
from strategist.contract import codec
from strategist.cost.shipped import Shipped, shipped
from strategist.paths import data_dir

SOURCE = "published rows (profiles/measurements) without the groups of held-out.yaml, by benchmarks/refit.py"


def main() -> None:
    """Writes ``profiles/calibrations.json`` and prints a line a fit."""
    folder, devices = Path(sys.argv[1]), set(sys.argv[2:])
    cases, _ = read_cases(read_rows(folder))
    fitting = [case for case in cases if not held_out(case)]
    chosen = [case for case in fitting if not devices or case.cluster.device.name in devices]
    kept = [item for item in shipped().fits if devices and item.device not in devices]
    found = refit(chosen)
    shown = Shipped(source=SOURCE, fits=(*kept, *found), memory_spreads=memory_spreads(fitting))
    codec.save(shown, data_dir("profiles") / "calibrations.json")
    for item in found:
        print(f"{item.device:<18}{item.stack:<22}{item.rows:>5} rows, {item.noise:.1%} noise")


if __name__ == "__main__":
    main()
