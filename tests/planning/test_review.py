"""Review of another system's file: whether it fits, what forbids it, and better settings."""

import json
from pathlib import Path
from typing import Any

import pytest
from formats.plans import deck

from strategist import api
from strategist.contract.estimate import DEFAULT_CONFIDENCE, Fit
from strategist.contract.review import Review
from strategist.formats.completed_config import GivenValues, setup
from strategist.formats.config_reader import parse_config
from strategist.formats.deepspeed import FORMAT
from strategist.formats.source import parse
from strategist.planning.review import imported, reasons, reviewed

USUAL: dict[str, Any] = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4, "bf16": {"enabled": True}}


GIVEN: dict[str, Any] = {"seq_len": 4096, "train": "full", "optimizer": "adamw"}


def review(
    config: dict[str, Any], model: str, gpus: str, *, whole: bool = True, confidence: float = DEFAULT_CONFIDENCE, **settings: Any
) -> Review:
    """The review with everything stated that decides memory."""
    settings = {"recompute": "full" if "activation_checkpointing" in config else "none", **settings}
    return _review(config, GivenValues(gpus=gpus, model=model, workload=GIVEN, settings=settings), whole, confidence)


def _review(config: dict[str, Any], given: GivenValues, whole: bool = False, confidence: float = DEFAULT_CONFIDENCE) -> Review:
    source = parse(json.dumps({**USUAL, **config}, indent=1), "ds.json")
    made = setup(source, parse_config(source, FORMAT), given)
    return (reviewed if whole else imported)(source, FORMAT, made, deck=deck(), confidence=confidence)


def codes(found: Review) -> list[str]:
    return [item.code for item in found.findings]


@pytest.fixture(scope="module")
def too_large() -> Review:
    """Of a file whose model fits after no single change."""
    return review({"zero_optimization": {"stage": 2}}, "8b", "8x24GB")


@pytest.fixture(scope="module")
def offloaded() -> Review:
    """Of a file that offloads more than it needs to."""
    return review({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}, "8b", "8xH100")


def test_a_config_that_does_not_fit_is_an_error_with_a_fitting_plan(too_large: Review) -> None:
    assert not too_large.fits
    assert "FMT-005" in codes(too_large)
    assert too_large.best is not None
    assert too_large.best.estimate.fits
    assert too_large.best.workload == too_large.plan.workload


def test_if_no_change_fits_the_next_step_is_a_plan_command(too_large: Review) -> None:
    [large] = [item for item in too_large.findings if item.code == "FMT-005"]
    command = large.do.partition(": ")[2]
    assert command == "strategist plan --model 8b --gpus 8x24GB --global-batch 32 --backend deepspeed"


def test_a_card_finding_has_the_line_of_the_forbidden_setting(too_large: Review) -> None:
    [finding] = [item for item in too_large.findings if item.code == "FMT-006"]
    assert "FSDP-001" in finding.message
    assert finding.do == "see strategist cards show FSDP-001"
    assert finding.line is not None


def test_reductions_in_fp16_which_no_setting_has_break_no_card(tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    path.write_text("model_name_or_path: m\nstage: sft\nfinetuning_type: full\ntemplate: t\nfp16: true\n"
                    "deepspeed: {zero_optimization: {stage: 3}, fp16: {enabled: true}}\n", encoding="utf-8")  # fmt: skip
    found = api.import_plan(path, GivenValues(gpus="8xV100", model="1b"))
    assert found.plan is not None
    assert (found.plan.workload.precision, found.plan.candidate.knobs.reduce_dtype) == ("fp16", "bf16")
    assert "FMT-006" not in codes(found)


def test_a_card_that_forbids_a_whole_plan_names_the_plan() -> None:
    config = {"train_micro_batch_size_per_gpu": 64, "zero_optimization": {"stage": 3}, "activation_checkpointing": {}}
    found = review(config, "8b", "8x24GB", whole=False)
    assert any("rules out this plan: The logits of one micro-batch" in item.message for item in found.findings)


def test_changes_that_help_are_texts_with_their_cards(offloaded: Review) -> None:
    found = offloaded
    assert found.fits
    assert set(codes(found)) <= {"FMT-003"}
    [none] = [change for change in found.changes if (change.setting, change.value) == ("offload", "none")]
    assert none.speedup > 1.05
    assert none.expressible
    assert not none.changes_convergence
    speedups = [change.speedup for change in found.changes if not change.changes_convergence]
    assert speedups == sorted(speedups, reverse=True)


def test_the_best_plan_may_keep_convergence_changes_of_the_file(offloaded: Review) -> None:
    """DeepSpeed reduces in the compute dtype unless a file sets another."""
    found = offloaded
    assert found.plan.candidate.knobs.reduce_dtype == "bf16"
    assert found.best is not None
    assert {found.best.candidate.knobs.float8, found.best.candidate.knobs.comm_hook} == {"none"}


def test_illegal_settings_give_a_finding_and_no_plan() -> None:
    found = review({"tensor_parallel": {"autotp_size": 16}}, "8b", "16xH100", whole=False)
    assert found.plan is None
    [law, *_] = [item for item in found.findings if item.code == "FMT-004"]
    assert "tp 16 must divide kv_heads 8" in law.message
    assert law.line is not None


def test_a_config_is_priced_with_the_stack_of_its_framework() -> None:
    """DeepSpeed does not overlap reductions with compute; torchtitan's stack would."""
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


def test_reasons_start_with_the_card_of_the_setting() -> None:
    found = review({"zero_optimization": {"stage": 3}}, "8b", "8xH100", whole=False)
    texts = reasons(found.plan, deck())
    assert all(text.partition(":")[0].replace("-", "").isalnum() for text in texts.values())
    assert "dp_replicate" in texts or "pp" in texts


def test_entries_that_cannot_change_the_verdict_keep_it_definite() -> None:
    stage3 = {"stage": 3, "zero_quantized_weights": True}
    for batch, entries, expected in (
        (1, {}, Fit.FITS),
        (64, {}, Fit.TOO_LARGE),  # with 64 sequences the peak contains no gathered parameters
        (1, {"hybrid_engine": {"enabled": True}}, Fit.FITS),  # a second copy of the weights for generation, which fits
        (64, {"activation_checkpointing": {"partition_activations": True}}, Fit.UNKNOWN),
        (64, {"some_new_section": {"x": 1}}, Fit.TOO_LARGE),  # not an entry of DeepSpeed
    ):
        found = review(
            {"train_micro_batch_size_per_gpu": batch, "zero_optimization": stage3, **entries}, "8b", "8xH100", whole=False
        )
        assert found.fit is expected, (batch, entries)
        assert bool(found.uncertainties) == (expected is Fit.UNKNOWN)


def test_entries_that_could_exceed_memory_make_the_verdict_unknown() -> None:
    for size, gpus, confidence, expected in (
        (5, "5xH100", 0.9, Fit.UNKNOWN), (5, "5xH100", 0.5, Fit.FITS), (4, "8xH100", 0.9, Fit.FITS)
    ):  # fmt: skip
        hpz = {"stage": 3, "zero_hpz_partition_size": size}
        found = review({"zero_optimization": hpz}, "8b", gpus, whole=False, confidence=confidence)
        assert found.fit is expected, gpus
    assert found.plan.candidate.knobs.reshard_after_forward == "subgroup"


def test_the_verdict_depends_on_the_requested_confidence() -> None:
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}}
    fits = {confidence: review(config, "8b", "8xA100", whole=False, confidence=confidence).fit for confidence in (0.5, 0.9)}
    assert fits[0.9] is Fit.TIGHT
    assert fits[0.5] in (Fit.FITS, Fit.TOO_LARGE)


def test_a_memory_finding_has_the_line_of_an_entry_whose_change_fits() -> None:
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}, "activation_checkpointing": {}}
    found = review(config, "8b", "8x48GB")
    [large] = [item for item in found.findings if item.code in ("FMT-005", "FMT-010")]
    change = next(change for change in found.changes if change.fits and change.setting in large.do)
    assert change.expressible
    assert large.line is not None


@pytest.mark.parametrize(("batch", "verdict"), [(1, Fit.FITS), (2, Fit.TIGHT), (3, Fit.TOO_LARGE)])
def test_the_verdict_follows_the_fit_probability(batch: int, verdict: Fit) -> None:
    found = review({"train_micro_batch_size_per_gpu": batch, "zero_optimization": {"stage": 3}}, "8b", "8xA100", whole=False)
    assert found.fit is verdict
    assert ("FMT-005" in codes(found), "FMT-010" in codes(found)) == (verdict is Fit.TOO_LARGE, verdict is Fit.TIGHT)


def test_settings_stay_expressible_for_a_model_that_the_format_cannot_export(tmp_path: Path) -> None:
    """The file describes it nevertheless: Megatron-LM's layer norms with biases."""
    arguments = "--num-layers 16 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --vocab-size 50304"
    arguments += " --max-position-embeddings 2048"
    degrees = "--tensor-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 8 --bf16"
    script = tmp_path / "run.sh"
    script.write_text(f"torchrun --nproc_per_node 4 pretrain_gpt.py {arguments} {degrees} --use-distributed-optimizer\n")
    found = api.check_config(script, GivenValues(gpus="4xH100"))
    changes = {(change.setting, change.value): change for change in found.changes}
    assert changes["tp", 2].expressible
    assert not changes["compile", True].expressible
