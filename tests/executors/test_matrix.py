"""The published table of engines is the one that the tests make."""

from executors.matrix import PAGE, matrix, page


def test_the_published_table_is_the_generated_one() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text), "make docs"


def test_no_engine_is_without_a_test() -> None:
    empty = [row for row in matrix().splitlines() if row.endswith("|  |")]
    assert empty == []
