"""Error on the rest of a published sweep after 0, 5, 10 and 20 of its rows were fitted.

python benchmarks/few_shot_calibration.py [FOLDER]
"""

import sys
from pathlib import Path

from strategist.accuracy.few_shot_calibration import CALIBRATION_ROWS, few_shot_errors
from strategist.accuracy.prediction_errors import read_cases
from strategist.accuracy.row import read_rows
from strategist.paths import data_dir


def main() -> None:
    """Prints a row a group: mean error, and the median in brackets, by rows that calibrated."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else data_dir("profiles") / "measurements" / "published"
    cases, _ = read_cases(read_rows(folder))
    print(
        f"{'source':<34}{'device':<16}{'stack':<20}{'rows':>6}" + "".join(f"{f'after {count}':>16}" for count in CALIBRATION_ROWS)
    )
    for item in few_shot_errors(cases):
        shown = "".join(f"{f'{item.mape[count]:.1%} ({item.median_ape[count]:.1%})':>16}" for count in CALIBRATION_ROWS)
        print(f"{item.source:<34}{item.device:<16}{item.stack:<20}{item.rows:>6}{shown}")


if __name__ == "__main__":
    main()
