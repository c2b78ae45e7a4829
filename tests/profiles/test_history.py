"""History of measurements: a file of JSON lines that survives torn writes."""

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
def file(tmp_path):
    return tmp_path / "history.jsonl"


def test_appended_records_are_read_back_unchanged(file):
    append(file, PLAN, MEASUREMENT)
    append(file, PLAN, FAILED)
    history = read(file)
    assert history.records == (Record(plan=PLAN, measurement=MEASUREMENT), Record(plan=PLAN, measurement=FAILED))
    assert history.findings == ()


def test_a_record_is_one_readable_json_line(file):
    append(file, PLAN, FAILED)
    assert file.read_bytes().count(b"\n") == 1
    data = json.loads(file.read_text())
    assert list(data) == ["version", "plan", "measurement", "trial", "proposed_by"]
    assert "内存" in file.read_text()


def test_lines_of_older_versions_without_later_fields_load(file):
    data = json.loads(line_with())
    del data["trial"], data["proposed_by"]
    for added in ("exposed_comm_ratio_by_axis", "bubble_ratio", "rank_imbalance", "stage_imbalance"):
        del data["measurement"][added]
    file.write_text(json.dumps(data) + "\n")
    assert read(file).records == (Record(plan=PLAN, measurement=MEASUREMENT),)


@given(st.data())
def test_a_torn_line_is_a_finding_and_the_next_append_is_intact(tmp_path_factory, data):
    file = tmp_path_factory.mktemp("torn") / "history.jsonl"
    append(file, PLAN, MEASUREMENT)
    whole = file.read_bytes()
    torn = data.draw(st.integers(1, len(whole) - 2))
    file.write_bytes(whole + whole[:torn])
    history = read(file)
    assert len(history.records) == 1
    assert [(found.code, found.level, found.line) for found in history.findings] == [("HIST001", Level.WARNING, 2)]
    append(file, PLAN, FAILED)
    assert [record.measurement for record in read(file).records] == [MEASUREMENT, FAILED]


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
def test_an_invalid_line_is_a_finding_with_its_reason(file, line, words):
    file.write_text(line + "\n" + line_with() + "\n")
    history = read(file)
    assert len(history.records) == 1
    (finding,) = history.findings
    assert (finding.code, finding.level, finding.path, finding.line) == ("HIST002", Level.ERROR, str(file), 1)
    assert words in finding.message


def test_binary_lines_are_findings_and_blank_lines_are_ignored(file):
    file.write_bytes(b"\xff\xfe\n\n  \n" + line_with().encode() + b"\n")
    history = read(file)
    assert (len(history.records), len(history.findings)) == (1, 1)


def test_a_non_finite_figure_is_not_written(file):
    with pytest.raises(codec.CodecError):
        append(file, PLAN, replace(MEASUREMENT, step_seconds=float("nan")))
    assert not file.exists()


def test_unreadable_and_unwritable_paths_raise_an_error(tmp_path):
    with pytest.raises(FileError, match="cannot be read"):
        read(tmp_path / "absent.jsonl")
    with pytest.raises(FileError, match="cannot be written"):
        append(tmp_path / "absent" / "history.jsonl", PLAN, MEASUREMENT)
