"""``strategist accuracy`` at the shell."""

import json
from pathlib import Path

import pytest

from strategist.cli.main import main
from tests.report.published import LAYOUTS, write

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with two sources."""
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder, "first_sweep", LAYOUTS)
    write(folder, "second_table", [{"precision": "fp7"}, {"seq_len": 0}, {"oom": 0}])
    return folder


def printed(arguments: list[str], capsys: Captured) -> str:
    assert main(["accuracy", *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_json_of_a_folder_and_of_one_of_its_sources(data: Path, capsys: Captured) -> None:
    both = json.loads(printed(["--data", str(data), "--json"], capsys))
    assert [source["name"] for source in both["sources"]] == ["first_sweep", "second_table"]
    second = json.loads(printed(["--data", str(data), "--source", "table", "--json", "--worst", "1"], capsys))
    assert second["sources"] == both["sources"][1:]
    assert second["sources"][0]["rows_skipped"] == 2
    assert len(second["worst"]) == 1
    assert second == json.loads(printed(["--data", str(data / "second_table.csv"), "--json", "--worst", "1"], capsys))


def test_accuracy_is_printed_and_written_as_html(data: Path, tmp_path: Path, capsys: Captured) -> None:
    text = printed(["--data", str(data), "--html", str(tmp_path / "page.html")], capsys)
    assert "first sweep" in text
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert page.count("<circle") == 10


HEAD = "model,gpu,n_gpus,tp,pp"
WRONG = (
    ("", ["t.csv:1", "column model is missing"]),
    ("a,b\n1,2\n", ["t.csv:1", "column model is missing"]),
    (HEAD + "\n", ["--data", "holds no row"]),
    (f"{HEAD}\nx,H100,eight,1,1\n", ["t.csv:2", "n_gpus 'eight'", "leave unknown cells empty"]),
    (f"{HEAD}\nx,H100,8,1,1\nx,H100,8,-1,1\n", ["t.csv:3", "tp '-1'", "from 0 to"]),
    (f"{HEAD}\nx,H100,8,1.5,1\n", ["t.csv:2", "tp '1.5'", "whole number"]),
    (f"{HEAD}\nx,H100,1e300,1,1\n", ["t.csv:2", "n_gpus '1e300'"]),
    (f"{HEAD}\nx,H100,nan,1,1\n", ["t.csv:2", "n_gpus 'nan'"]),
    ("\xff\xfe", ["t.csv", "is no"]),
)


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_a_wrong_table_prints_one_error_line(text: str, words: list[str], tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "t.csv"
    file.write_text(text, encoding="latin-1")
    check_error(["--data", str(file)], words, capsys)


def test_a_wrong_path_or_option_prints_one_error_line(data: Path, tmp_path: Path, capsys: Captured) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    check_error(["--data", str(empty)], ["empty", "holds no CSV file"], capsys)
    check_error(["--data", str(tmp_path / "none.csv")], ["none.csv", "cannot be read"], capsys)
    check_error(["--data", str(data), "--source", "third"], ["--source third", "first_sweep, second_table"], capsys)
    check_error(["--data", str(data), "--html", str(tmp_path / "no" / "page.html")], ["page.html", "cannot be written"], capsys)
    check_error(["--data", str(data), "--worst", "0"], ["--worst 0", "at least 1"], capsys)


def check_error(arguments: list[str], words: list[str], capsys: Captured) -> None:
    assert main(["accuracy", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert all(word in err for word in words), err


def test_invalid_rows_are_skipped_with_a_reason(data: Path, capsys: Captured) -> None:
    text = printed(["--data", str(data), "--source", "second"], capsys)
    assert "1: its figures break a law of clusters, models or workloads" in text
    assert "1: batch size or sequence length is not stated" in text
