"""Fits the shipped calibrations again: factors by software stack and device, to published rows outside the held-out groups.

python benchmarks/refit.py FOLDER [DEVICE ...]    only those devices, the others stay as they are
"""

import sys
from dataclasses import replace
from math import isclose
from pathlib import Path

from strategist.accuracy.held_out import held_out
from strategist.accuracy.measure import read_cases
from strategist.accuracy.refit import memory_spreads, refit
from strategist.accuracy.row import read_rows
from strategist.contract import codec
from strategist.cost.calibration import SLOWEST_LAUNCH_SECONDS
from strategist.cost.shipped import FittedTo, Shipped, shipped
from strategist.paths import data_dir
from strategist.profiles.cluster import typical_node

SOURCE = "published rows (profiles/measurements) without the groups of held-out.yaml, by benchmarks/refit.py"


def main() -> None:
    """Writes ``profiles/calibrations.json`` and prints a line a fit, with the factors that end at a limit of the hardware: there
    some structure is missing."""
    folder, devices = Path(sys.argv[1]), set(sys.argv[2:])
    cases, _ = read_cases(read_rows(folder))
    fitting = [case for case in cases if not held_out(case)]
    chosen = [case for case in fitting if not devices or case.cluster.device.name in devices]
    kept = [item for item in shipped().fits if devices and item.device not in devices]
    found = [replace(item, calibration=item.calibration.within(typical_node(item.device))) for item in refit(chosen)]
    shown = Shipped(source=SOURCE, fits=(*kept, *found), memory_spreads=memory_spreads(fitting))
    codec.save(shown, data_dir("profiles") / "calibrations.json")
    for item in found:
        print(f"{item.device:<18}{item.stack:<22}{item.rows:>5} rows, {item.noise:.1%} noise{_at_limit(item)}")


def _at_limit(item: FittedTo) -> str:
    """What ends at a limit of the hardware with these factors."""
    seen = item.calibration.on(typical_node(item.device))
    ends = {
        "links in a node": (seen.intra.bytes_per_second, seen.intra.line_bytes_per_second),
        "ports between nodes": (seen.inter.bytes_per_second, seen.inter.line_bytes_per_second),
        "large matmuls": (seen.device.matmul.points[-1][1], 1),
        "attention": (seen.device.attention_efficiency, 1),
        "memory": (seen.device.memory_efficiency, 1),
        "launching": (seen.device.launch_seconds, SLOWEST_LAUNCH_SECONDS),
    }
    found = ", ".join(name for name, (reached, limit) in ends.items() if limit and isclose(reached, limit, rel_tol=1e-3))
    return f"; at a limit: {found}" if found else ""


if __name__ == "__main__":
    main()
