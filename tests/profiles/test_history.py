"""History: records in a file that survives torn writes."""

import json
from dataclasses import replace

import pytest
from contract.samples import MEASUREMENT, PLAN
from hypothesis import given, strategies as st

from strategist.contract import codec
from strategist.contract.diagnostic import Level
from strategist.contract.measurement import Evidence, Outcome
from strategist.errors import FileError
from strategist.profiles.history import Record, append, read

FAILED = replace(
    MEASUREMENT, outcome=Outcome.OOM, step_seconds=None, evidence=Evidence(message="内存\u2028不足 \udc80", rank=3, phase="measure")
)  # fmt: skip


@pytest.fixture
def place(tmp_path):
    return tmp_path / "history.jsonl"


def test_records_come_back_as_they_were_written(place):
    append(place, PLAN, MEASUREMENT)
    append(place, PLAN, FAILED)
    history = read(place)
    assert history.records == (Record(plan=PLAN, measurement=MEASUREMENT), Record(plan=PLAN, measurement=FAILED))
    assert history.findings == ()


def test_a_line_is_a_json_object_that_people_can_read(place):
    append(place, PLAN, FAILED)
    assert place.read_bytes().count(b"\n") == 1
    data = json.loads(place.read_text())
    assert list(data) == ["version", "plan", "measurement", "trial", "proposed_by"]
    assert "内存" in place.read_text()


def test_lines_that_name_no_trial_and_nobody_who_proposed_it_load(place):
    data = json.loads(line_with())
    del data["trial"], data["proposed_by"]
    for added in ("exposed_comm_ratio_by_axis", "bubble_ratio", "rank_imbalance", "stage_imbalance"):
        del data["measurement"][added]
    place.write_text(json.dumps(data) + "\n")
    assert read(place).records == (Record(plan=PLAN, measurement=MEASUREMENT),)


@given(st.data())
def test_a_line_torn_anywhere_is_a_finding_and_the_next_record_is_whole(tmp_path_factory, data):
    place = tmp_path_factory.mktemp("torn") / "history.jsonl"
    append(place, PLAN, MEASUREMENT)
    whole = place.read_bytes()
    torn = data.draw(st.integers(1, len(whole) - 2))
    place.write_bytes(whole + whole[:torn])
    history = read(place)
    assert len(history.records) == 1
    assert [(found.code, found.level, found.line) for found in history.findings] == [("HIST001", Level.WARNING, 2)]
    append(place, PLAN, FAILED)
    assert [record.measurement for record in read(place).records] == [MEASUREMENT, FAILED]


def line_with(**changes):
    data = codec.encode(Record(plan=PLAN, measurement=MEASUREMENT))
    return json.dumps({"version": codec.VERSION, **data, **changes})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (line_with(colour="red"), "unknown key 'colour'"),
        (line_with(version=codec.VERSION + 1), "version 2"),
        (line_with(version=True), "version True"),
        (line_with(plan={}), "record.plan: key"),
        (line_with().replace('"step_seconds": 2.0', '"step_seconds": NaN'), "NaN is not a finite number"),
        ("[]", "a JSON object, not list"),
    ],
)
def test_a_line_that_holds_no_record_is_a_finding_that_says_why(place, line, words):
    place.write_text(line + "\n" + line_with() + "\n")
    history = read(place)
    assert len(history.records) == 1
    (finding,) = history.findings
    assert (finding.code, finding.level, finding.path, finding.line) == ("HIST002", Level.ERROR, str(place), 1)
    assert words in finding.message


def test_bytes_that_are_no_text_and_blank_lines(place):
    place.write_bytes(b"\xff\xfe\n\n  \n" + line_with().encode() + b"\n")
    history = read(place)
    assert (len(history.records), len(history.findings)) == (1, 1)


def test_a_figure_that_is_none_is_never_written(place):
    with pytest.raises(codec.CodecError):
        append(place, PLAN, replace(MEASUREMENT, step_seconds=float("nan")))
    assert not place.exists()


def test_places_that_cannot_be_used_are_named(tmp_path):
    with pytest.raises(FileError, match="cannot be read"):
        read(tmp_path / "absent.jsonl")
    with pytest.raises(FileError, match="cannot be written"):
        append(tmp_path / "absent" / "history.jsonl", PLAN, MEASUREMENT)
