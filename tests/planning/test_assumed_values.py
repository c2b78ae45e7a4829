"""A verdict stays open where another plausible value of an assumed entry would turn it."""

import csv
from pathlib import Path
from typing import Any

import pytest
import yaml

from strategist import api
from strategist.contract.estimate import Fit
from strategist.contract.review import Review
from strategist.formats.completed_config import GivenValues
from strategist.paths import data_dir
from strategist.planning.assumed_values import PLAUSIBLE_VALUES

FSDP = {
    "distributed_type": "FSDP", "mixed_precision": "bf16",
    "fsdp_config": {"fsdp_version": 2, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_activation_checkpointing": True},
}  # fmt: skip
STATED = {"seq_len": 2048, "train": "full", "optimizer": "adamw", "global_batch": 8}


def checked(folder: Path, *, model: str = "8b", gpus: str = "8xH100", micro_batch: int | None = 1, **workload: Any) -> Review:
    """The review of an accelerate file, which states neither lengths, batches, optimizer nor what is trained."""
    path = folder / "accelerate.yaml"
    path.write_text(yaml.safe_dump(FSDP), encoding="utf-8")
    settings = {"micro_batch": micro_batch} if micro_batch else {}
    given = {name: value for name, value in {**STATED, **workload}.items() if value is not None}
    return api.import_plan(path, GivenValues(gpus=gpus, model=model, workload=given, settings=settings))


@pytest.mark.parametrize(
    ("left_out", "gpus", "model", "flat", "option"),
    [
        ({"train": None}, "4x32GB", "8b", Fit.TOO_LARGE, "--train lora"),
        ({"optimizer": None}, "4x32GB", "8b", Fit.TOO_LARGE, "--optimizer adamw8bit"),
        ({"seq_len": None}, "8x32GB", "8b", Fit.FITS, "--seq-len 8192"),
        ({"micro_batch": None, "global_batch": None}, "8x32GB", "8b", Fit.FITS, "--fix micro_batch="),
    ],
)
def test_an_assumed_value_that_could_turn_the_verdict_opens_it(
    tmp_path: Path, left_out: dict[str, Any], gpus: str, model: str, flat: Fit, option: str
) -> None:
    name = next(iter(left_out))
    assert checked(tmp_path, gpus=gpus, model=model).fit is flat
    review = checked(tmp_path, gpus=gpus, model=model, **left_out)
    assert review.fit is Fit.UNKNOWN
    doubt = review.uncertainties[0]
    assert doubt.startswith(f"{name} ")
    assert "it needs " in doubt
    assert f"(give {option}" in doubt


def test_a_verdict_that_no_plausible_value_turns_stays_flat_and_lists_the_assumption(tmp_path: Path) -> None:
    nothing = {"train": None, "seq_len": None, "optimizer": None, "global_batch": None, "micro_batch": None}
    for model, gpus, expected in (("gpt2-small", "8xH200", Fit.FITS), ("405b", "1x24GB", Fit.TOO_LARGE)):
        review = checked(tmp_path, model=model, gpus=gpus, **nothing)
        assert review.fit is expected
        assumed = {item.do.split()[1].removeprefix("--") for item in review.findings if item.code == "FMT-003"}
        assert {"train", "seq-len", "optimizer"} <= assumed


def test_values_that_turn_the_verdict_only_together_are_named_together(tmp_path: Path) -> None:
    """Neither sequences of 8,192 tokens nor micro-batches of 8 sequences alone fill the devices."""
    alone = [checked(tmp_path, model="1b", gpus="8xH200", global_batch=None, **{name: None}) for name in ("seq_len", "micro_batch")]
    assert [review.fit for review in alone] == [Fit.FITS, Fit.FITS]
    review = checked(tmp_path, model="1b", gpus="8xH200", seq_len=None, micro_batch=None, global_batch=None)
    [doubt] = review.uncertainties
    assert doubt.startswith("seq_len and micro_batch")
    assert "with seq_len 8192, micro_batch 8" in doubt


def test_a_length_that_only_a_run_knows_is_priced_at_plausible_lengths(tmp_path: Path) -> None:
    """Its memory is bounded by the plausible lengths; without them a verdict was open however little memory was needed."""
    script = tmp_path / "run.sh"
    flags = "--num-layers 16 --hidden-size 2048 --num-attention-heads 16 --vocab-size 50304 --seq-length $LENGTH"
    flags += " --max-position-embeddings 8192 --tensor-model-parallel-size 1 --micro-batch-size 1 --global-batch-size 64 --bf16"
    script.write_text(f"torchrun --nproc_per_node 8 pretrain_gpt.py {flags} --use-distributed-optimizer --overlap-grad-reduce\n")
    assert api.import_plan(script, GivenValues(gpus="8xH200")).fit is Fit.FITS
    review = api.import_plan(script, GivenValues(gpus="8x24GB"))
    assert review.fit is Fit.UNKNOWN
    assert review.uncertainties[0].startswith("seq_len 4096 is assumed, with ")


def test_plausible_lengths_and_batches_are_those_of_published_runs() -> None:
    lengths, batches = [], []
    for path in (data_dir("profiles") / "measurements" / "published").glob("*.csv"):
        with path.open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                lengths += [float(row["seq_len"])] if row.get("seq_len") else []
                batches += [float(row["micro_batch"])] if row.get("micro_batch") else []
    assert quantile(lengths, 0.01) == PLAUSIBLE_VALUES["seq_len"][0]
    assert quantile(lengths, 0.98) == PLAUSIBLE_VALUES["seq_len"][-1]
    assert quantile(batches, 0.8) == PLAUSIBLE_VALUES["micro_batch"][-1]


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * len(values))]
