"""Generated texts with comments are read back unchanged."""

import json
import subprocess
import tomllib
from string import ascii_lowercase

import yaml
from hypothesis import given, settings, strategies as st

from strategist.files import yaml_file
from strategist.formats.commented_text import heading, json_text, remark, script, toml_text, yaml_text

TEXTS = st.text(st.characters(blacklist_categories=["Cs"]), max_size=40)
VALUES = st.one_of(TEXTS, st.integers(-(10**9), 10**9), st.booleans(), st.none(), st.lists(TEXTS, max_size=3))
TOML_VALUES = (TEXTS, st.integers(), st.booleans(), st.lists(TEXTS, max_size=3))
KEYS = st.text(f"{ascii_lowercase}_", min_size=1, max_size=8)


@settings(max_examples=300)
@given(st.dictionaries(KEYS, st.one_of(VALUES, st.dictionaries(KEYS, VALUES, min_size=1, max_size=3)), max_size=4), TEXTS)
def test_yaml_survives_a_round_trip_with_two_readers(data: dict, note: str) -> None:
    text = yaml_text(data, dict.fromkeys(data, note))
    assert (yaml.safe_load(text) or {}) == data
    printable = not any(ord(letter) < 32 or 0x7F <= ord(letter) < 0xA0 or ord(letter) in (0x2028, 0x2029) for letter in str(data))
    if data and printable and "\\" not in repr(data):
        assert yaml_file.parse(text).data == data


@settings(max_examples=200)
@given(st.dictionaries(KEYS, st.dictionaries(KEYS, st.one_of(*TOML_VALUES), max_size=3), max_size=4))
def test_toml_survives_a_round_trip(data: dict) -> None:
    assert tomllib.loads(toml_text(data)) == data


@settings(max_examples=100)
@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_json_survives_a_round_trip(data: dict) -> None:
    assert json.loads(json_text(data)) == data


@settings(max_examples=40)
@given(st.lists(st.text(st.characters(blacklist_characters="\x00", blacklist_categories=["Cs"]), max_size=20), max_size=4), TEXTS)
def test_a_script_passes_every_argument_unchanged(words: list[str], note: str) -> None:
    text = script(("printf", "%s\\0"), [(words, note)], about=[note])
    done = subprocess.run(["bash", "-c", text, "bash", "more"], capture_output=True, check=True)
    assert done.stdout.decode().split("\0") == [*words, "more", ""]


def test_a_remark_is_always_one_line() -> None:
    assert remark("a\nb\r\u2028c\x00d\u202ee") == "# a b c d e"
    assert heading(["a", ""]) == "# a\n#\n"
