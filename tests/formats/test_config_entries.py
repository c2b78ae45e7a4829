"""Entries that a format reads, and entries that it has not read."""

import pytest

from strategist.errors import FileError
from strategist.formats.config_entries import Entries
from strategist.formats.source import parse

TEXT = """
a: 4
b: "8"
c: 1e2
d: true
e: "False"
f: auto
g: {h: word, i: null}
"""


@pytest.fixture
def entries() -> Entries:
    return Entries(parse(TEXT, "x.yaml"))


def test_whole_numbers_are_read_from_strings_and_floats(entries: Entries) -> None:
    assert (entries.integer("a"), entries.integer("b"), entries.integer("c")) == (4, 8, 100)
    assert entries.integer("nothing", "a") == 4
    assert entries.integer("nothing") is None


def test_auto_and_null_count_as_unset(entries: Entries) -> None:
    assert entries.integer("f") is None
    assert entries.get("g.i") is None


def test_booleans_and_choices_are_read(entries: Entries) -> None:
    assert (entries.flag("d"), entries.flag("e"), entries.flag("nothing")) == (True, False, None)
    words = Entries(parse("a: 1\nb: 'no'\nc: yes\nd: 0", "x.yaml"))
    assert [words.flag(name) for name in "abcd"] == [True, False, True, False]
    assert entries.choice({"word": 1}, "g.h") == 1


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda entries: entries.integer("d"), "x.yaml:5:1: d is True: a whole number from 1 on is needed"),
        (lambda entries: entries.integer("a", minimum=5), "a is 4: a whole number from 5"),
        (lambda entries: entries.integer("g.h"), "x.yaml:8:5: g.h is 'word'"),
        (lambda entries: entries.flag("a"), "a is 4: true or false is needed"),
        (lambda entries: entries.choice({"x": 1, "y": 2}, "g.h"), "g.h is word: one of x, y is needed"),
    ],
)
def test_an_invalid_value_is_refused_with_its_position(entries: Entries, read, message: str) -> None:
    with pytest.raises(FileError) as caught:
        read(entries)
    assert message in str(caught.value)


def test_unread_returns_the_entries_that_were_not_read(entries: Entries) -> None:
    entries.integer("a")
    entries.get("b", "c")
    assert [entry.name for entry in entries.unread()] == ["d", "e", "f", "g.h", "g.i"]
