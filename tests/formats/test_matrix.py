"""The published table of formats equals the generated one."""

import pytest

from formats.matrix import PAGE, page
from strategist.formats.catalog import formats


@pytest.mark.full
def test_the_published_table_is_the_generated_one() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text), "make docs"


def test_each_format_has_a_section() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in formats():
        assert f"\n## {name}\n" in text, name
