"""Markup: text is escaped."""

import pytest

from strategist.report.page.html import Html, element, empty, join

EVIL = "<script>alert('1')</script>&\"x"


def test_text_and_attributes_are_escaped() -> None:
    written = element("p", EVIL, title=EVIL)
    assert "<script" not in written
    assert written.count("&lt;script&gt;") == 2
    assert '"x' not in written.partition(">")[2]
    assert "<script" not in join([EVIL, element("b", EVIL)])


def test_markup_is_not_escaped_again() -> None:
    assert element("p", element("b", "a"), Html("<i>b</i>"), "<c>") == "<p><b>a</b><i>b</i>&lt;c&gt;</p>"


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ({"class_": "a", "data_of_tp": "2"}, ' class="a" data-of-tp="2"'),
        ({"x": 1.23456, "y": 4.0, "r": -0.001}, ' x="1.23" y="4" r="-0"'),
        ({"hidden": True, "open": False, "id": None}, " hidden"),
        ({"data_item": ""}, ' data-item=""'),
    ],
)
def test_attributes_are_written_in_html_syntax(given: dict[str, str | float | bool | None], written: str) -> None:
    assert empty("a", **given) == f"<a{written}/>"
