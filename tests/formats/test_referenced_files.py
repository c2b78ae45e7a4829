"""Settings of a trainer in a file that its script names by ``--config``."""

from pathlib import Path

import pytest

from strategist.errors import FileError
from strategist.formats.config_reader import read
from strategist.formats.parsed_config import ParsedConfig

TRAINER = "per_device_train_batch_size: 2\nbf16: true\nmax_length: 4096\ngradient_checkpointing_kwargs: {use_reentrant: false}\n"


def found(folder: Path, script: str, config: str = TRAINER) -> ParsedConfig:
    (folder / "config.yaml").write_text(config, encoding="utf-8")
    (folder / "run.sh").write_text(script, encoding="utf-8")
    _, chosen, parsed = read(folder / "run.sh")
    assert chosen.name == "hf-trainer"
    return parsed


@pytest.mark.parametrize("start", ["torchrun --nproc_per_node 8", "accelerate launch", "python"])
def test_the_settings_are_those_of_the_file(tmp_path: Path, start: str) -> None:
    parsed = found(tmp_path, f"{start} sft.py --config config.yaml\n")
    assert (parsed.settings["micro_batch"], parsed.workload["precision"], parsed.workload["seq_len"]) == (2, "bf16", 4096)
    assert ("FMT-011" in [item.code for item in parsed.findings]) == (start == "accelerate launch")


def test_the_flags_of_the_script_count_over_the_file(tmp_path: Path) -> None:
    flags = "--per_device_train_batch_size 1 --gradient_accumulation_steps=16 --deepspeed z2.json"
    parsed = found(
        tmp_path, f"torchrun sft.py --config config.yaml {flags}\n", TRAINER + "deepspeed: {zero_optimization: {stage: 3}}\n"
    )
    assert (parsed.settings["micro_batch"], parsed.accumulation, parsed.settings["reshard_after_forward"]) == (1, 16, False)


def test_a_path_in_the_file_leads_on_from_where_it_stands(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "ds.json").write_text('{"zero_optimization": {"stage": 3}}', encoding="utf-8")
    (tmp_path / "recipes" / "own.yaml").write_text(TRAINER + "deepspeed: ds.json\n", encoding="utf-8")
    assert found(tmp_path, "torchrun sft.py --config recipes/own.yaml\n").settings["reshard_after_forward"] is True


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("none.yaml", "--config none.yaml: the file is not there from the script's folder up"),
        ("$FILE", "--config $FILE: the file is known only where the script runs"),
    ],
)
def test_a_script_that_says_nothing_else_needs_its_file(tmp_path: Path, value: str, words: str) -> None:
    with pytest.raises(FileError) as raised:
        found(tmp_path, f"\naccelerate launch sft.py --config {value}\n")
    assert words in str(raised.value)
    assert raised.value.line == 2


def test_a_missing_file_of_a_script_that_says_more_is_told(tmp_path: Path) -> None:
    parsed = found(tmp_path, "torchrun sft.py --config none.yaml --per_device_train_batch_size 4\n")
    told = [item.message for item in parsed.findings if item.code == "FMT-011"]
    assert told == ["config none.yaml is not there from the script's folder up: what it says is assumed"]
