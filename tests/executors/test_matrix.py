"""The published tables of engines and jobs equal those generated from the tests."""

from executors.matrix import PAGE, matrix, page
from launch.matrix import COLUMNS, REAL, matrix as jobs
from launch.starts import STUBBED


def test_the_published_table_equals_the_generated_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text), "make docs"


def test_every_engine_has_a_test() -> None:
    empty = [row for row in matrix().splitlines() if row.endswith("|  |")]
    assert empty == []


def test_each_format_is_tested_with_each_kind_of_job_and_its_real_launcher() -> None:
    rows = [[cell.strip() for cell in row.strip("| ").split(" | ")] for row in jobs().splitlines()[2:]]
    assert {*STUBBED, "rayjob"} == set(COLUMNS)
    assert [row[0] for row in rows if "-" in row] == []
    assert [row[0] for row in rows if not any(cell.startswith(REAL) for cell in row)] == []
