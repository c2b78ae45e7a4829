"""What is said of a file of another system: whether it fits, what rules it out, and what would be better."""

import json
from pathlib import Path
from typing import Any

import pytest
from formats.plans import deck

from strategist import api
from strategist.contract.estimate import DEFAULT_CONFIDENCE, Fit
from strategist.contract.review import Review
from strategist.formats.config_reader import parse_config
from strategist.formats.deepspeed import FORMAT
from strategist.formats.setup import GivenValues, setup
from strategist.formats.source import parse
from strategist.planning.review import imported, reasons, reviewed

USUAL: dict[str, Any] = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4, "bf16": {"enabled": True}}


def review(
    config: dict[str, Any], model: str, gpus: str, *, whole: bool = True, confidence: float = DEFAULT_CONFIDENCE, **settings: Any
) -> Review:
    source = parse(json.dumps({**USUAL, **config}, indent=1), "ds.json")
    made = setup(
        source, parse_config(source, FORMAT), GivenValues(gpus=gpus, model=model, workload={"seq_len": 4096}, settings=settings)
    )
    return (reviewed if whole else imported)(source, FORMAT, made, deck=deck(), confidence=confidence)


def codes(found: Review) -> list[str]:
    return [item.code for item in found.findings]


@pytest.fixture(scope="module")
def too_large() -> Review:
    return review({"zero_optimization": {"stage": 2}}, "8b", "8x24GB")


def test_what_does_not_fit_is_an_error_and_something_that_fits_is_named(too_large: Review) -> None:
    assert not too_large.fits
    assert "FMT-005" in codes(too_large)
    assert too_large.best is not None
    assert too_large.best.estimate.fits
    assert too_large.best.workload == too_large.plan.workload


def test_the_next_step_of_what_no_change_makes_fit_is_a_command() -> None:
    [large] = [item for item in review({"zero_optimization": {"stage": 0}}, "70b", "8x24GB").findings if item.code == "FMT-005"]
    command = large.do.partition(": ")[2]
    assert command == "strategist plan --model 70b --gpus 8x24GB --global-batch 32 --backend deepspeed"


def test_a_card_that_rules_settings_out_points_at_their_line(too_large: Review) -> None:
    [ruled] = [item for item in too_large.findings if item.code == "FMT-006"]
    assert "FSDP-001" in ruled.message
    assert ruled.do == "strategist cards show FSDP-001 says more"
    assert ruled.line is not None


def test_changes_that_help_are_told_with_their_cards() -> None:
    found = review({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}, "1b", "8xH100")
    assert found.fits
    assert set(codes(found)) <= {"FMT-003"}
    [none] = [change for change in found.changes if (change.setting, change.value) == ("offload", "none")]
    assert none.speedup > 1.05
    assert none.expressible
    assert not none.changes_convergence
    speedups = [change.speedup for change in found.changes if not change.changes_convergence]
    assert speedups == sorted(speedups, reverse=True)


def test_the_best_may_change_of_the_trained_model_what_the_file_changes() -> None:
    """DeepSpeed reduces in the type that it computes in, unless a file says otherwise."""
    found = review({"zero_optimization": {"stage": 3}}, "8b", "8xH100")
    assert found.plan.candidate.knobs.reduce_dtype == "bf16"
    assert found.best is not None
    assert {found.best.candidate.knobs.float8, found.best.candidate.knobs.comm_hook} == {"none"}


def test_settings_that_break_a_law_make_no_plan() -> None:
    found = review({"tensor_parallel": {"autotp_size": 16}}, "8b", "16xH100", whole=False)
    assert found.plan is None
    [law, *_] = [item for item in found.findings if item.code == "FMT-004"]
    assert "tp 16 must divide kv_heads 8" in law.message
    assert law.line is not None


def test_it_is_priced_as_its_own_system_runs_it() -> None:
    """DeepSpeed reduces between kernels, not beside them; torchtitan's stack would hide it."""
    from strategist.planning.planner import price_candidate
    from strategist.profiles.situation import situation

    found = review({"zero_optimization": {"stage": 3}}, "8b", "8xH100", whole=False)
    source = parse(json.dumps({**USUAL, "zero_optimization": {"stage": 3}}), "ds.json")
    made = setup(
        source, parse_config(source, FORMAT), GivenValues(gpus="8xH100", model="8b", workload={"seq_len": 4096}, settings={})
    )
    ours = price_candidate(made.situation, made.candidate, deck=deck())
    assert found.plan.estimate.step_seconds != ours.estimate.step_seconds
    assert situation(made.situation.request).model == found.plan.model


def test_reasons_name_the_card_of_each_setting() -> None:
    found = review({"zero_optimization": {"stage": 3}}, "8b", "8xH100", whole=False)
    told = reasons(found.plan, deck())
    assert all(text.partition(":")[0].replace("-", "").isalnum() for text in told.values())
    assert "dp_replicate" in told or "pp" in told


def test_an_entry_that_cannot_turn_the_verdict_leaves_it_flat() -> None:
    stage3 = {"stage": 3, "zero_quantized_weights": True}
    for batch, entries, expected in (
        (1, {}, Fit.FITS),
        (64, {}, Fit.TOO_LARGE),  # gathers are no part of what 64 sequences need
        (1, {"hybrid_engine": {"enabled": True}}, Fit.FITS),  # generates with weights of its own, for which there is room
        (64, {"activation_checkpointing": {"partition_activations": True}}, Fit.UNKNOWN),
        (64, {"some_new_section": {"x": 1}}, Fit.TOO_LARGE),  # no name that DeepSpeed knows
    ):
        found = review(
            {"train_micro_batch_size_per_gpu": batch, "zero_optimization": stage3, **entries}, "8b", "8xH100", whole=False
        )
        assert found.fit is expected, (batch, entries)
        assert bool(found.uncertainties) == (expected is Fit.UNKNOWN)


def test_an_entry_that_could_add_what_is_not_there_makes_a_fit_open() -> None:
    hpz = {"stage": 3, "zero_hpz_partition_size": 4}
    for gpus, confidence, expected in (("4xH100", 0.9, Fit.UNKNOWN), ("4xH100", 0.5, Fit.FITS), ("8xH100", 0.9, Fit.FITS)):
        found = review({"zero_optimization": hpz}, "8b", gpus, whole=False, confidence=confidence)
        assert found.fit is expected, gpus
    assert found.plan.candidate.knobs.reshard_after_forward == "subgroup"


def test_the_verdict_follows_the_confidence_that_is_asked_for() -> None:
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}}
    fits = {confidence: review(config, "8b", "8xA100", whole=False, confidence=confidence).fit for confidence in (0.5, 0.9)}
    assert fits[0.9] is Fit.TIGHT
    assert fits[0.5] in (Fit.FITS, Fit.TOO_LARGE)


def test_a_finding_on_memory_points_at_the_entry_whose_change_fits() -> None:
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}, "activation_checkpointing": {}}
    found = review(config, "8b", "8x48GB")
    [large] = [item for item in found.findings if item.code in ("FMT-005", "FMT-010")]
    change = next(change for change in found.changes if change.fits and change.setting in large.do)
    assert change.expressible
    assert large.line is not None


@pytest.mark.parametrize(("batch", "verdict"), [(1, Fit.FITS), (2, Fit.TIGHT), (3, Fit.TOO_LARGE)])
def test_the_verdict_follows_the_probability_that_it_fits(batch: int, verdict: Fit) -> None:
    found = review({"train_micro_batch_size_per_gpu": batch, "zero_optimization": {"stage": 3}}, "8b", "8xA100", whole=False)
    assert found.fit is verdict
    assert ("FMT-005" in codes(found), "FMT-010" in codes(found)) == (verdict is Fit.TOO_LARGE, verdict is Fit.TIGHT)


def test_a_model_that_a_format_cannot_be_exported_with_leaves_its_settings_open(tmp_path: Path) -> None:
    """The file describes it all the same: Megatron-LM's layer norms with biases."""
    arguments = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 --vocab-size 50304"
    arguments += " --max-position-embeddings 2048"
    degrees = "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 64 --bf16"
    script = tmp_path / "run.sh"
    script.write_text(f"torchrun --nproc_per_node 8 pretrain_gpt.py {arguments} {degrees} --use-distributed-optimizer\n")
    found = api.check_config(script, GivenValues(gpus="8xH100"))
    changes = {(change.setting, change.value): change for change in found.changes}
    assert changes["tp", 2].expressible
    assert not changes["compile", True].expressible
