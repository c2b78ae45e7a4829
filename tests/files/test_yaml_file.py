"""The YAML reader: values, positions, and refusals."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from strategist.errors import FileError
from strategist.files import yaml_file

CARD = """\
StrategyCard:
  id: X-001
  policies:
    - id: a
      when: layout.tp > 1
    - id: b
      when: 'layout.tp > 2'
      because: >-
        first line
        second line
"""
AMBIGUOUS = (
    "010",
    "-007",
    "00.5",
    "0o17",
    "0x1F",
    "0b11",
    "1:30",
    "12:30:45",
    "-1:30.5",
    "1_000",
    ".inf",
    "-.INF",
    ".nan",
    "1e999",
)
PIECES = (*"&*!|>'\"[]{}#%@`,:-? \n\t\x00\x1b0", "<<: ", "*a", "&a ", "!!x ", "---\n", "\ud800", "1_0")


def refusal(text: str) -> FileError:
    with pytest.raises(FileError) as caught:
        yaml_file.parse(text, "card.yaml")
    return caught.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5), ("1e3", 1000.0), ("12", 12), ("-3.5", -3.5), ("+7", 7), (".5", 0.5), ("1.", 1.0), ("0", 0),
        ("no", "no"), ("on", "on"), ("Yes", "Yes"), ("true", True), ("False", False), ("~", None), ("null", None), ("", None),
        ("2024-01-01", "2024-01-01"), ("8x24GB", "8x24GB"), ("25 GB/s", "25 GB/s"), ("'010'", "010"), ('"1:30"', "1:30"),
        ("[1, a, {b: c}]", [1, "a", {"b": "c"}]), ("1.2.3", "1.2.3"), ("999999999999999999", 10**18 - 1),
    ],
)  # fmt: skip
def test_scalars_read_as_in_yaml_1_2(text: str, value: object) -> None:
    data = yaml_file.parse(f"a: {text}").data["a"]
    assert data == value
    assert type(data) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "010",
        "-007",
        "00.5",
        "0o17",
        "0x1F",
        "0b11",
        "1:30",
        "12:30:45",
        "-1:30.5",
        "1_000",
        ".inf",
        "-.INF",
        ".nan",
        "1e999",
        "1" * 30,
    ],
)
def test_ambiguous_numbers_are_refused_with_their_place(text: str) -> None:
    error = refusal(f"a: 1\nb: [2, {text}]")
    assert (error.line, error.column) == (2, 8)
    assert "quote it" in error.message


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a: &x 1\nb: 2", (1, 4), "anchors"),
        ("a: 1\nb: *a", (2, 4), "aliases"),
        ("a: !!python/object:os.system 1", (1, 4), "tags"),
        ("a: !t\n  b: 1", (1, 4), "tags"),
        ("a: 1\nb: 2\na: 3", (3, 1), "twice"),
        ("a: {b: 1, b: 2}", (1, 11), "twice"),
        ("<<: {a: 1}", (1, 1), "merge key"),
        ("1: a", (1, 1), "a key is text"),
        ("? [a]\n: b", (1, 3), "a key is text"),
        ("a: 1\n---\nb: 2", (2, 1), "second document"),
        ("a: b: c", (1, 5), "not YAML"),
        ('a: "\\e[31mred"', (1, 4), "cannot be shown"),
        ("a: \u202eb", (1, 4), "cannot be shown"),
    ],
)
def test_unsupported_yaml_is_refused_with_its_place(text: str, place: tuple[int, int], words: str) -> None:
    error = refusal(text)
    assert (error.line, error.column) == place
    assert words in error.message
    assert str(error).startswith(f"card.yaml:{place[0]}:{place[1]}: ")


def test_depth_nodes_and_size_are_bounded(tmp_path: Path) -> None:
    assert yaml_file.parse("[" * 32 + "]" * 32).data is not None
    assert "deeper than 32" in refusal("[" * 34 + "]" * 34).message
    assert "deeper than 32" in refusal("[" * 100_000).message
    assert len(yaml_file.parse("[" + "1," * 19_000 + "]").data) == 19_000
    assert "more than 20000" in refusal("[" + "1," * 20_001 + "]").message
    assert "256 KiB" in refusal("a: " + "x" * 300_000).message
    big = tmp_path / "big.yaml"
    big.write_bytes(b"x" * 300_000)
    for read in (yaml_file.load, yaml_file.read_text):
        with pytest.raises(FileError, match="256 KiB"):
            read(big)


def test_values_keys_and_characters_have_positions() -> None:
    document = yaml_file.parse(CARD)
    policies = ("StrategyCard", "policies")
    assert document.mark((*policies, 0, "when")) == (5, 13)
    assert document.mark((*policies, 0, "when"), key=True) == (5, 7)
    assert document.mark((*policies, 0, "when"), offset=10) == (5, 23)
    assert document.mark((*policies, 1, "when"), offset=10) == (7, 24), "inside the quotes"
    assert document.mark((*policies, 1, "because"), offset=5) == (8, 16), "a multiline text has the position of its start"
    assert document.mark((*policies, 7, "when")) == document.mark(policies), "a missing value has the position of its parent"
    assert document.data["StrategyCard"]["policies"][1]["because"] == "first line second line"


def test_a_written_document_keeps_the_order_of_its_keys() -> None:
    data = {"model": "8b", "gpus": "8xH100", "fix": {"tp": 2, "pp": 1}, "allow": ["float8", "comm_hook"], "name": "名"}
    text = yaml_file.dump(data)
    assert text.splitlines() == ["model: 8b", "gpus: 8xH100", "fix: {tp: 2, pp: 1}", "allow: [float8, comm_hook]", "name: 名"]
    assert yaml_file.parse(text).data == data


def test_a_file_is_read_with_its_name_in_errors(tmp_path: Path) -> None:
    path = tmp_path / "card.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert yaml_file.load(path).data == {"a": 1}
    path.write_bytes(b"a: \xff")
    with pytest.raises(FileError, match="not UTF-8"):
        yaml_file.load(path)
    with pytest.raises(FileError, match=r"missing\.yaml: cannot be read"):
        yaml_file.load(tmp_path / "missing.yaml")
    assert yaml_file.parse("").data is None


@settings(max_examples=300)
@given(st.data())
def test_a_mutated_document_is_read_or_refused(data: st.DataObject) -> None:
    text = CARD
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        piece = data.draw(st.sampled_from(PIECES))
        text = text[:at] + piece + text[at + data.draw(st.integers(0, 2)) :]
    with suppress(FileError):
        assert yaml_file.parse(text).path == "<text>"
