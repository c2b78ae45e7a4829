"""Packed documents on the command line: planning, running, and end tokens."""

import json
from pathlib import Path

import pytest

from strategist.cli import training_options
from strategist.cli.main import main
from strategist.cli.parser import Parser
from strategist.contract import codec
from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan

TINY = ["plan", "--model", "tiny", "--gpus", "4xcpu", "--seq-len", "128", "--global-batch", "16", "--backend", "native"]
SHARED = [*TINY, "--fix", "cp=2", "--fix", "dp_shard=2"]


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    file = tmp_path / "plan.json"
    assert main([*SHARED, "--document-tokens", "32", "-o", str(file)]) == 0
    return file


def settings(*words: str) -> TrialSettings:
    parser = Parser()
    training_options.add(parser)
    return training_options.settings(parser.parse_args(words))


def test_a_plan_for_packed_documents_uses_flex_attention_and_per_document_balance(plan_file: Path) -> None:
    plan = codec.load(Plan, plan_file)
    assert plan.workload.document_tokens == 32
    assert (plan.candidate.options.cp_attention, plan.candidate.options.cp_load_balance) == ("flex", "per_document")
    assert plan.backends == ("native",)


def test_a_request_file_sets_document_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "request.yaml"
    file.write_text("model: tiny\ngpus: 4xcpu\nseq_len: 128\nglobal_batch: 16\ndocument_tokens: 32\n", encoding="utf-8")
    assert main(["plan", "--request", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plans"][0]["workload"]["document_tokens"] == 32


def test_document_tokens_of_a_run_override_the_plan(plan_file: Path) -> None:
    workload = codec.load(Plan, plan_file).workload
    assert settings().document_tokens(workload) == 32
    assert settings("--document-tokens", "8").document_tokens(workload) == 8
    assert settings("--data", "tokens.bin", "--document-end", "7").document_end == 7


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--document-tokens", "0"], "--document-tokens 0"),
        (["--document-end", "7"], "--document-end 7: is for data of your own"),
        (["--document-tokens", "8", "--data", "FILE"], "--document-tokens 8: is at least 1, and for synthetic text only"),
        (
            ["--data", "FILE"],
            "the plan is for documents of 32 tokens, and no option gives the token that ends them; add --document-end TOKEN",
        ),
    ],
)
def test_a_wrong_document_option_prints_one_error_line(
    words: list[str], message: str, plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = tmp_path / "tokens.bin"
    tokens.write_bytes(bytes(1000))
    assert main(["run", str(plan_file), *(str(tokens) if word == "FILE" else word for word in words)]) == 2
    assert message in capsys.readouterr().err


def test_a_causal_ring_plan_is_refused_for_packed_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    assert main([*SHARED, "-o", str(file)]) == 0
    assert main(["run", str(file), "--document-tokens", "32"]) == 2
    assert "native cannot run layout" not in (text := capsys.readouterr().err)
    assert "cp 2, cp_attention sdpa, document_tokens 32: the ring is causal only; choose cp_attention flex" in text
