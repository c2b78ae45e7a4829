"""JSON within bounds: refusals with line and column."""

import json
from pathlib import Path

import pytest

from contract import samples
from strategist.contract import codec, json_document
from strategist.contract.plan import Plan
from strategist.errors import FileError

TEXT = """{
  "a.b": [1, {"c": "x: [y, \\" {"}],
  "d": {"e": null, "f": [[2, 3], []]}
}"""


@pytest.mark.parametrize(
    ("place", "line", "column"),
    [("It.a.b[1].c", 2, 20), ("It.d.f[0][1]", 3, 30), ("It.d.f[1]", 3, 34), ("It.d", 3, 8), ("It", 1, 1), ("It.d.g", 1, 1)],
)
def test_each_place_has_line_and_column(place: str, line: int, column: int) -> None:
    assert json_document.position(TEXT, place, "It") == (line, column)


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ('{"a": 1,\n "b": {"a": 2},\n "a": 3}', 3, 7, "key 'a' appears twice; leave one of them out"),
        ('[{"a": 1}, {"a": 1, "a": 2}]', 1, 26, "appears twice"),
        ('{"a": "NaN",\n "b": NaN}', 2, 7, "NaN is not a finite number"),
        ("[1,\n -Infinity]", 2, 2, "-Infinity is not a finite number"),
        ("[1,\n 2", 2, 3, "not a JSON document: Expecting ',' delimiter"),
        ("[" * 100_000, 1, 1, "nested too deeply"),
        ("9" * 5000, 1, 1, "thousands of digits"),
    ],
)
def test_refused_documents_report_line_and_column(text: str, line: int, column: int, words: str) -> None:
    with pytest.raises(json_document.DocumentError) as caught:
        json_document.read(text)
    assert words in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_accepted_documents_are_read_like_json_loads() -> None:
    assert json_document.read(TEXT) == json.loads(TEXT)


def test_files_beyond_the_size_limits_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    for text in (" " * (json_document.MAX_BYTES + 1), "[" + "[]," * json_document.MAX_VALUES + "[]]"):
        file.write_text(text)
        with pytest.raises(FileError, match=r"plan\.json: is larger than 8 MiB or 100000 values; name another file"):
            json_document.load(file)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('"layers": 4', '"layers": "4"', r"Plan.model.layers: int is needed, not str '4'; correct it"),
        ('"layers": 4', '"layers": 4, "colour": 1', r"Plan.model: unknown key 'colour'"),
        ('"layers": 4', '"layers": 0', r"layers 0: must be at least 1; correct the shape"),
        ('"layers": 4', f'"layers": {10**400}', r"Plan.model.layers: beyond 1e\+30; write a number"),
    ],
)
def test_an_invalid_value_is_reported_with_its_line(tmp_path: Path, before: str, after: str, words: str) -> None:
    file, text = tmp_path / "plan.json", codec.dumps(samples.PLAN)
    assert before in text
    file.write_text(text.replace(before, after, 1))
    line = text.split(before)[0].count("\n") + 1
    if "shape" in words:
        line = text[: text.index('"model": {')].count("\n") + 1
    with pytest.raises(FileError, match=words) as caught:
        codec.load(Plan, file)
    assert caught.value.line == line
