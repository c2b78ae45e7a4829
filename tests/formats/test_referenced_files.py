"""Trainer settings in a file that the script names with ``--config``."""

from pathlib import Path

import pytest

from strategist.errors import FileError
from strategist.formats.config_reader import read
from strategist.formats.parsed_config import ParsedConfig

TRAINER = "per_device_train_batch_size: 2\nbf16: true\nmax_length: 4096\ngradient_checkpointing_kwargs: {use_reentrant: false}\n"


def parse_script(folder: Path, script: str, config: str = TRAINER) -> ParsedConfig:
    (folder / "config.yaml").write_text(config, encoding="utf-8")
    (folder / "run.sh").write_text(script, encoding="utf-8")
    _, chosen, parsed = read(folder / "run.sh")
    assert chosen.name == "hf-trainer"
    return parsed


@pytest.mark.parametrize("start", ["torchrun --nproc_per_node 8", "accelerate launch", "python"])
def test_settings_come_from_the_config_file(tmp_path: Path, start: str) -> None:
    parsed = parse_script(tmp_path, f"{start} sft.py --config config.yaml\n")
    assert (parsed.settings["micro_batch"], parsed.workload["precision"], parsed.workload["seq_len"]) == (2, "bf16", 4096)
    assert ("FMT-011" in [item.code for item in parsed.findings]) == (start == "accelerate launch")


def test_flags_override_the_config_file(tmp_path: Path) -> None:
    flags = "--per_device_train_batch_size 1 --gradient_accumulation_steps=16 --deepspeed z2.json"
    parsed = parse_script(
        tmp_path, f"torchrun sft.py --config config.yaml {flags}\n", TRAINER + "deepspeed: {zero_optimization: {stage: 3}}\n"
    )
    assert (parsed.settings["micro_batch"], parsed.accumulation, parsed.settings["reshard_after_forward"]) == (1, 16, False)


def test_paths_in_the_config_file_are_relative_to_that_file(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "ds.json").write_text('{"zero_optimization": {"stage": 3}}', encoding="utf-8")
    (tmp_path / "recipes" / "own.yaml").write_text(TRAINER + "deepspeed: ds.json\n", encoding="utf-8")
    assert parse_script(tmp_path, "torchrun sft.py --config recipes/own.yaml\n").settings["reshard_after_forward"] is True


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("none.yaml", "--config none.yaml: the file is not found from the script's folder up"),
        ("$FILE", "--config $FILE: the file is known only where the script runs"),
    ],
)
def test_a_missing_config_file_without_flags_is_an_error(tmp_path: Path, value: str, words: str) -> None:
    with pytest.raises(FileError) as raised:
        parse_script(tmp_path, f"\naccelerate launch sft.py --config {value}\n")
    assert words in str(raised.value)
    assert raised.value.line == 2


def test_a_missing_config_file_with_flags_is_a_finding(tmp_path: Path) -> None:
    parsed = parse_script(tmp_path, "torchrun sft.py --config none.yaml --per_device_train_batch_size 4\n")
    messages = [item.message for item in parsed.findings if item.code == "FMT-011"]
    assert messages == ["config none.yaml is not found from the script's folder up: the program's defaults are assumed"]


def test_a_script_that_starts_another_script_names_it(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text("torchrun train.py --per_device_train_batch_size 1\n", encoding="utf-8")
    (tmp_path / "submit.sh").write_text("#SBATCH --nodes=2\nsrun train.sh\n", encoding="utf-8")
    with pytest.raises(FileError, match=r"starts train\.sh; check that script"):
        read(tmp_path / "submit.sh")
