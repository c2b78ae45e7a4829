"""``strategist init``: writes answers as a request file for ``plan``, and plans."""

import io
from pathlib import Path

import pytest

from strategist.cli.main import main
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.profiles.request_file import load_request, request_text


def type_lines(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def test_answers_are_written_as_a_request_and_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    type_lines(monkeypatch, "tiny", "2xcpu", "64", "8", "")
    path = tmp_path / "request.yaml"
    assert main(["init", "-o", str(path)]) == 0
    assert load_request(path) == Request(model="tiny", gpus="2xcpu", workload=Workload(seq_len=64, global_batch=8))
    output = capsys.readouterr()
    assert output.err.count("]: ") == 5
    assert "Best plan" in output.out
    assert output.out.endswith(f"request written to {path}: strategist plan --request {path} plans it again\n")
    assert main(["plan", "--request", str(path), "--top", "1"]) == 0


def test_an_invalid_answer_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    type_lines(monkeypatch, "tinny", "tiny", "2xGTX", "2xcpu", "many", "0", "64", "", "fully", "lora")
    assert main(["init", "-o", str(tmp_path / "request.yaml")]) == 0
    output = capsys.readouterr().err
    assert [output.count(text) for text in ("Model: ", "GPUs: ", "Tokens of", "Sequences of", "What is trained")] == [2, 2, 3, 1, 2]
    for law in (
        "tinny",
        "GTX",
        "a whole number of at most 12 digits is needed",
        "must be at least 1",
        "--train fully: is not known",
    ):
        assert law in output
    assert load_request(tmp_path / "request.yaml").workload.train == "lora"


def test_an_existing_file_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "request.yaml").write_text("mine")
    assert main(["init", "-o", str(tmp_path / "request.yaml")]) == 2
    assert "is there already" in capsys.readouterr().err
    assert (tmp_path / "request.yaml").read_text() == "mine"


def test_an_early_end_of_input_prints_one_line_and_writes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    type_lines(monkeypatch, "tiny")
    assert main(["init", "-o", str(tmp_path / "request.yaml")]) == 2
    assert "strategist: strategist init: ended before all questions were answered" in capsys.readouterr().err
    assert not (tmp_path / "request.yaml").exists()


@pytest.mark.parametrize(
    "request_",
    [
        Request(model="32b", gpus="8x24GB"),
        Request(
            model="8b", gpus="4x8xH100", workload=Workload(seq_len=8192, train="lora", precision="bf16-true"), objective="cost",
            host_memory_bytes=2**39, fix={"tp": 2, "recompute": "full", "compile": False}, allow=("float8",), backend="native",
            tokens=10**12, confidence=0.9, node_seconds_between_failures=21600.0, price_per_hour=2.5,
        ),
    ],
)  # fmt: skip
def test_a_written_request_is_read_back_equal(request_: Request, tmp_path: Path) -> None:
    path = tmp_path / "request.yaml"
    path.write_text(request_text(request_))
    assert load_request(path) == request_
