"""``strategist check``, ``import`` and ``export``."""

import json
from pathlib import Path

import pytest

from strategist.cli.main import main
from strategist.contract import codec
from strategist.contract.plan import Plan
from strategist.contract.review import Review

CONFIG = {
    "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4, "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3},
}  # fmt: skip
ONE = ("--model", "qwen2.5-0.5b", "--gpus", "1xH100", "--seq-len", "4096")
"""A request for one device: few alternatives, so checks are quick."""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(CONFIG, indent=2))
    return path


@pytest.fixture
def large(config: Path) -> Path:
    """A config file that needs more memory than any device has."""
    path = config.with_name("large.json")
    path.write_text(json.dumps(CONFIG | {"train_micro_batch_size_per_gpu": 64}))
    return path


def test_check_exits_with_1_if_a_config_does_not_fit(config: Path, large: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(config), *ONE]) == 0
    assert "It fits" in capsys.readouterr().out
    assert main(["check", str(config), str(large), *ONE]) == 1
    shown = capsys.readouterr().out
    assert shown.index(f"{config}:") < shown.index("It fits") < shown.index(f"{large}:") < shown.index("It would run out of memory")
    assert "FMT-005" in shown


def test_check_as_json_is_a_document_or_a_list(config: Path, large: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--seq-len", "4096", "--train", "full", "--optimizer", "adamw", "--fix", "recompute=full")
    assert main(["check", str(config), "--model", "8b", "--gpus", "8xH100", *given, "--json"]) == 0
    found = codec.loads(Review, capsys.readouterr().out)
    assert found.format == "deepspeed"
    assert found.plan.candidate.layout.dp_shard == 8
    assert main(["check", str(config), str(large), *ONE, "--json"]) == 1
    assert [item["format"] for item in json.loads(capsys.readouterr().out)] == ["deepspeed"] * 2


def test_check_annotates_a_pull_request(large: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(large), *ONE, "--output", "github"]) == 1
    assert "::error file=" in capsys.readouterr().out


def test_a_plan_survives_export_and_import(tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, again, out = tmp_path / "plan.json", tmp_path / "again.json", tmp_path / "out"
    given = ["--model", "8b", "--gpus", "8xH100", "--seq-len", "4096"]
    assert main(["import", str(config), *given, "-o", str(plan)]) == 0
    assert main(["export", str(plan), "--to", "deepspeed", "-o", str(out)]) == 0
    assert (out / "train.sh").stat().st_mode & 0o100
    assert main(["import", str(out / "ds_config.json"), *given, "-o", str(again)]) == 0
    assert codec.load(Plan, again).candidate == codec.load(Plan, plan).candidate
    capsys.readouterr()
    assert main(["export", str(plan), "--to", "deepspeed", "-o", str(out)]) == 2
    assert "is there already" in capsys.readouterr().err


def test_settings_that_a_format_cannot_express_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.json"
    asked = ["plan", "--model", "8b", "--gpus", "8xH100", "-o", str(plan)]
    assert main([*asked, "--fix", "compile=true", "--fix", "pp=1", "--fix", "tp=1"]) == 0
    assert main(["export", str(plan), "--to", "deepspeed"]) == 0
    printed = capsys.readouterr()
    assert "FMT-007: deepspeed cannot run knobs.compile = true" in printed.err
    assert json.loads(printed.out[printed.out.index("{") :])["zero_optimization"]
    assert main([*asked, "--fix", "pp=2"]) == 0
    capsys.readouterr()
    assert main(["export", str(plan), "--to", "deepspeed"]) == 2
    assert "cannot run layout.pp = 2; it takes 1; plan again with --backend deepspeed" in capsys.readouterr().err
    assert main([*asked, "--train", "qlora"]) == 0
    capsys.readouterr()
    assert main(["export", str(plan), "--to", "torchtitan"]) == 2
    assert "train = qlora; it takes full; change the request, or export to another format" in capsys.readouterr().err


def test_a_plan_for_a_format_exports_without_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.json"
    assert main(["plan", "--model", "8b", "--gpus", "8xH100", "--backend", "deepspeed", "-o", str(plan)]) == 0
    capsys.readouterr()
    assert main(["export", str(plan), "--to", "deepspeed"]) == 0
    content = capsys.readouterr().err.splitlines()
    assert content
    assert all(line.startswith("strategist: missing: ") for line in content), "only values that the user has to add"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "FILE"], "--gpus: is missing"),
        (["check", "FILE", "--gpus", "8xH100"], "the file does not say which model"),
        (["check", "FILE", "--gpus", "8xH100", "--format", "deepsped"], "did you mean deepspeed?"),
        (["check", "/nonexistent.json", "--gpus", "8xH100"], "cannot be read"),
        (["check", "FILE", "--gpus", "8xH100", "--output", "xml"], "--output xml: is not known"),
        (["import", "FILE", "--gpus", "8xH100"], "the file does not say which model"),
        (["export", "FILE", "--to", "deepspeed"], "FILE"),
        (["export", "/nonexistent.json", "--to", "deepspeed"], "cannot be read"),
    ],
)
def test_wrong_input_prints_one_error_line(
    arguments: list[str], message: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(config) if word == "FILE" else word for word in arguments]) == 2
    printed = capsys.readouterr().err
    assert message.replace("FILE", str(config)) in printed
    assert printed.count("\n") == 1


def test_a_file_of_unknown_format_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.yaml").write_text("a: 1\n")
    assert main(["check", str(tmp_path / "x.yaml"), "--gpus", "8xH100"]) == 2
    assert "is of no format that is known" in capsys.readouterr().err


def test_check_exits_with_3_if_an_unpriced_entry_could_change_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = (
        "model_name_or_path: llama3-8b\nstage: sft\nfinetuning_type: full\nper_device_train_batch_size: 16\ncutoff_len: 4096\n"
    )
    content += "bf16: true\npacking: true\n"
    file, liger, zero = tmp_path / "train.yaml", "enable_liger_kernel: true\n", "deepspeed: {zero_optimization: {stage: 3}}\n"

    def checked(text: str, *options: str) -> tuple[int, str]:
        file.write_text(content + text)
        code = main(["check", str(file), "--gpus", "8xA100", *options])
        return code, " ".join(capsys.readouterr().out.split())

    code, shown = checked(zero + liger)
    assert (code, "FMT-005" in shown) == (3, False)
    assert "Cannot tell whether it fits:" in shown
    assert "enable_liger_kernel could save up to" in shown
    code, shown = checked(liger)
    assert (code, "accelerate launch --config_file could save up to" in shown) == (3, True)
    code, shown = checked(liger, "--fix", "dp_shard=1")
    assert code == 1, "weights and states of each replica alone are more than a device has"
    assert "whatever the entries save that are not priced" in shown


def test_check_of_a_script_reads_the_launchers_config_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "zero3.yaml").write_text("distributed_type: DEEPSPEED\nmixed_precision: bf16\ndeepspeed_config: {zero_stage: 3}\n")
    (tmp_path / "sft.yaml").write_text(
        "per_device_train_batch_size: 4\nmax_length: 4096\ngradient_checkpointing: true\nbf16: true\n"
    )
    script = tmp_path / "run.sh"

    def checked(name: str, *options: str) -> tuple[int, str]:
        script.write_text(f"accelerate launch --config_file {name} sft.py --config sft.yaml\n")
        code = main(["check", str(script), "--model", "8b", "--gpus", "8xH100", "--train", "full", "--seq-len", "4096", *options])
        return code, " ".join(capsys.readouterr().out.split())

    code, shown = checked("zero3.yaml")
    assert (code, "Findings" in shown) == (0, False)
    code, shown = checked("gone.yaml")
    assert (code, "--config_file gone.yaml is not found from the script's folder up" in shown) == (3, True)
    code, shown = checked("gone.yaml", "--fix", "dp_shard=8")
    assert (code, "FMT-011" in shown) == (0, False)


def test_check_uses_the_requested_confidence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ds.json"
    file.write_text(json.dumps(CONFIG | {"train_micro_batch_size_per_gpu": 2}))
    asked = ["check", str(file), "--model", "8b", "--gpus", "8xA100", "--seq-len", "4096", "--train", "full"]
    asked += ["--optimizer", "adamw", "--fix", "recompute=none"]
    assert main([*asked]) == 3
    assert "It is tight" in capsys.readouterr().out
    assert main([*asked, "--confidence", "50%"]) in (0, 1)
    assert "It is tight" not in capsys.readouterr().out
    assert main([*asked, "--confidence", "0.3"]) == 2
    assert "must lie from 0.5 to below 1" in capsys.readouterr().err


def test_frozen_layers_make_the_verdict_uncertain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "train.yaml"
    content = "model_name_or_path: {}\nstage: sft\nfinetuning_type: freeze\ncutoff_len: 2048\nbf16: true\npacking: true\n"
    for model, gpus, code in (("llama3-8b", "1x80GB", 3), ("qwen2.5-0.5b", "1x80GB", 3), ("llama3-70b", "1x24GB", 1)):
        file.write_text(content.format(model) + "per_device_train_batch_size: 1\n")
        assert main(["check", str(file), "--gpus", gpus]) == code, model
        shown = " ".join(capsys.readouterr().out.split())
        assert ("Cannot tell whether it fits" in shown) == (code == 3)
        assert "freeze trains some layers only" in shown
