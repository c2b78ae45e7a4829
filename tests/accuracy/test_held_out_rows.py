"""Published rows that no fit sees."""

import re

from strategist.accuracy.prediction_errors import read_cases
from strategist.accuracy.row import Row, read_rows
from strategist.paths import data_dir

MEASUREMENTS = data_dir("profiles") / "measurements"


def repositories(rows: tuple[Row, ...]) -> set[str]:
    """Repositories that rows come from, as ``owner/name``."""
    return {found[1].lower() for row in rows if (found := re.search(r"github\.com/([\w.-]+/[\w.-]+)", row.url_or_path))}


def test_no_fitted_row_comes_from_a_held_out_source() -> None:
    fitted, held_out = (repositories(read_rows(MEASUREMENTS / folder)) for folder in ("published", "held_out"))
    assert len(held_out) > 10
    assert fitted.isdisjoint(held_out)


def test_every_held_out_row_is_a_timed_plan() -> None:
    cases, skipped = read_cases(read_rows(MEASUREMENTS / "held_out"))
    assert not skipped
    assert all(case.fits_times for case in cases)
