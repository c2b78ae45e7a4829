"""The accuracy page: self-contained, small, with one dot per row."""

from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

from strategist import api
from strategist.report.accuracy_page import accuracy_page
from tests.report.published import LAYOUTS, with_errors, write

VOID = {"meta"}
LOADS = {"src", "href", "srcset", "xlink:href", "data", "action", "poster"}


class Reader(HTMLParser):
    """Counts elements, and records open elements and loaded resources."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.names: list[str] = []
        self.texts: dict[str, list[str]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] += 1
        given = dict(attrs)
        self.loads += [given[name] or "" for name in LOADS & given.keys()]
        self.ids += [given["id"] or ""] if "id" in given else []
        self.names += [given["aria-label"] or ""] if tag == "svg" else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Two sources: four runs with step time and memory; one run with memory only, and one out of memory."""
    with_errors(tmp_path, "times_and_memory", (1.1, 1.5, 0.9, 1.0))
    write(tmp_path, "memory_alone", [{"step_time_s": "", "row_id": "<b>&"}, {"step_time_s": "", "peak_mem_gib": "", "oom": 1}])
    return tmp_path


def test_every_element_is_closed_and_every_figure_has_a_dot(rows: Path) -> None:
    page = read(accuracy_page(api.accuracy(rows)))
    assert page.open == []
    assert page.count["circle"] == 4 + 4 + 1
    assert page.count["svg"] == 3
    assert len(set(page.ids)) == len(page.ids)


def test_the_page_loads_no_external_resource(rows: Path) -> None:
    text = accuracy_page(api.accuracy(rows))
    page = read(text)
    assert page.loads
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.loads)
    assert page.count["link"] == page.count["img"] == 0
    assert "url(" not in text
    assert "@import" not in text
    assert "://" not in text


def test_a_dot_describes_its_row_layout_and_values(rows: Path) -> None:
    titles = read(accuracy_page(api.accuracy(rows))).texts["title"]
    dots = [text for text in titles if text.startswith("tp2: ")]
    assert len(dots) == 2
    assert all("dp_shard 4, tp 2, batch 2x32" in dot and "published" in dot for dot in dots)
    assert any(text.startswith("<b>&: ") for text in titles)


def test_plots_have_labels_and_the_page_has_light_dark_and_print_styles(rows: Path) -> None:
    text = accuracy_page(api.accuracy(rows))
    assert any("Step time, predicted against published, times_and_memory: 3 of 4 within 20%" in name for name in read(text).names)
    assert all(words in text for words in ("prefers-color-scheme: dark", "@media print", 'name="viewport"', 'lang="en"'))


def test_a_page_of_thousands_of_rows_is_small(tmp_path: Path) -> None:
    rows = [{**row, "row_id": f"{number}-{row['row_id']}"} for number in range(75) for row in LAYOUTS]
    found = api.accuracy(write(tmp_path, "sweep", rows))
    size = len(accuracy_page(found).encode())
    assert size / (2 * len(rows)) * (2 * 5400) < 6e6
