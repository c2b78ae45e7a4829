"""The published table of engines is the one that the tests make."""

from executors.matrix import PAGE, matrix, page
from launch.matrix import COLUMNS, REAL, matrix as jobs
from launch.starts import STUBBED


def test_the_published_table_is_the_generated_one() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text), "make docs"


def test_no_engine_is_without_a_test() -> None:
    empty = [row for row in matrix().splitlines() if row.endswith("|  |")]
    assert empty == []


def test_each_format_is_started_by_each_kind_of_job_and_by_its_real_launcher() -> None:
    rows = [[cell.strip() for cell in row.strip("| ").split(" | ")] for row in jobs().splitlines()[2:]]
    assert {*STUBBED, "rayjob"} == set(COLUMNS)
    assert [row[0] for row in rows if "-" in row] == []
    assert [row[0] for row in rows if not any(cell.startswith(REAL) for cell in row)] == []
