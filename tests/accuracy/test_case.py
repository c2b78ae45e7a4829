"""Cases: a published row as a candidate that can be priced, with its measurement."""

import pytest

from strategist.accuracy.case import case_of
from strategist.accuracy.prediction_errors import price_cases
from strategist.accuracy.row import read_rows
from strategist.accuracy.skip_reason import Skipped, SkipReason
from strategist.cost.layer_flops import model_flops_per_token
from strategist.cost.memory import COMMUNICATOR_BYTES
from strategist.units import GIB
from tests.accuracy.published import FOLDER, made, row, rows


def test_a_published_step_time_is_used_unchanged():
    found = case_of(row("vtrain_ground_truth", "vt-multi-1"))
    assert found.step_seconds == 3.5665
    assert found.accumulation == 1
    assert found.candidate.knobs.recompute == "full"
    assert found.stack.name == "megatron-deepspeed"


def test_step_time_follows_from_tokens_per_second_per_gpu():
    case = case_of(made(step_time_s=None, tokens_per_s_per_gpu=4096.0))
    assert case.step_seconds == pytest.approx(16 * 4096 / (4096 * 8))


def test_step_time_follows_from_mfu():
    case = case_of(made(step_time_s=None, mfu=0.5))
    flops = model_flops_per_token(case.model, case.workload) * case.workload.tokens_per_step
    assert case.step_seconds == pytest.approx(flops / (0.5 * case.cluster.device.peak("bf16") * 8))


def test_hardware_flops_include_recomputation_and_model_flops_do_not():
    cells = {"step_time_s": None, "tflops_per_gpu": 400.0, "ac_mode": "full"}
    model = case_of(made(**cells)).step_seconds
    for notes in ("HFU 57 %", "recompute FLOPs counted", "TFLOPS count recomputation", "hardware FLOP/s"):
        assert case_of(made(**cells, notes=notes)).step_seconds == pytest.approx(4 / 3 * model)
    megatron = case_of(made(**cells, source="Megatron-LM (2021)")).step_seconds
    assert megatron == pytest.approx(4 / 3 * model, rel=0.01)  # the vocabulary is padded


def test_the_global_batch_of_a_heading_overrides_a_contradicting_column() -> None:
    """An 18B model with 2048 sequences of 2048 tokens in 130 s would need twice the peak of eight A100; 512 sequences give the
    published rate.
    """
    case = case_of(row("bigscience_bloom", "bs-59"))
    assert case.workload.global_batch == 512
    hardware_flops = 4 / 3 * model_flops_per_token(case.model, case.workload) * case.workload.tokens_per_step
    assert hardware_flops / case.step_seconds / 8 == pytest.approx(143.48e12, rel=0.06)


def test_a_guessed_batch_keeps_throughput_but_drops_the_step_time():
    guessed = {"micro_batch": None, "global_batch": None}
    assert case_of(made(**guessed, oom=None, peak_mem_gib=40.0)).step_seconds is None
    assert case_of(made(**guessed, step_time_s=None, tokens_per_s_per_gpu=1000.0)).step_seconds is not None


@pytest.mark.parametrize(
    ("cells", "reserved"),
    [
        ({"mem_kind": "allocated"}, False),
        ({"mem_kind": "active"}, False),
        ({"mem_kind": "reserved"}, True),
        ({"notes": "torch max_memory_allocated (inferred)"}, False),
        ({"notes": "nvidia-smi probable"}, True),
        ({}, True),
    ],
)
def test_memory_kind_is_allocated_or_reserved(cells, reserved):
    found = case_of(made(peak_mem_gib=40.0, **cells))
    assert found.reserved is reserved
    assert found.peak_memory_bytes == 40 * GIB


def test_memory_shown_by_nvidia_smi_includes_the_context_and_communicators() -> None:
    """Two of them: the profile's usable memory leaves out the context and the first communicator."""
    cells = {"tp": 2, "dp_shard": 4, "ac_mode": "full", "peak_mem_gib": 20.0}
    torch, process = (case_of(made(**cells, mem_kind=kind)) for kind in ("reserved", "nvidia-smi"))
    reserved, shown = (price_cases([case])[0].peak_memory_bytes for case in (torch, process))
    device = torch.cluster.device
    assert shown - reserved == pytest.approx(device.memory_bytes - device.usable_memory_bytes + COMMUNICATOR_BYTES)
    assert not case_of(made(peak_mem_gib=20.0, mem_kind="allocated", notes="nvidia-smi peak 22 GiB")).process


def test_peak_memory_may_belong_to_the_first_last_or_fullest_stage():
    golden = next(item for item in rows("megatron_lm_golden_values") if item.pp == 4 and item.n_gpus and "STALE" not in item.notes)
    assert case_of(golden).stage == "last"
    ends = {case_of(item).stage for item in rows("galvatron_memory_profiles") if item.pp == 2}
    assert ends == {"first", "last"}
    assert case_of(rows("galvatron_memory_profiles")[0]).stage == "fullest"
    assert case_of(made(peak_mem_gib=40.0)).stage == "fullest"
    between = case_of(made(peak_mem_gib=40.0, notes="memory only: pipeline stage 2 (rank 4)", pp=4, dp_shard=2, zero_stage=1))
    assert between.peak_memory_bytes is None


def test_oom_is_the_columns_value_unless_the_figures_are_analytic():
    assert case_of(made()).oom is False
    assert case_of(made(oom=1, step_time_s=None)).oom is True
    assert case_of(made(oom=0, notes="peak_mem left empty because the numbers look analytic")).oom is None


def test_rows_of_a_sweep_share_everything_but_layout_and_knobs():
    sweep = case_of(made()).sweep
    assert case_of(made(dp_shard=4, tp=2, micro_batch=2, ac_mode="full")).sweep == sweep
    for change in ({"seq_len": 2048}, {"global_batch": 32}, {"gpu": "A100"}, {"notes": "LoRA"}, {"file": "other"}):
        assert case_of(made(**change)).sweep != sweep


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"notes": "WARNING degrees multiply to 16"}, SkipReason.FLAGGED),
        ({"notes": "STALE? model_config.yaml changed"}, SkipReason.FLAGGED),
        ({"notes": "technique row '+ Activation Offloading'"}, SkipReason.OTHER_TECHNIQUE),
        ({"notes": "nn.DataParallel; total run time"}, SkipReason.OTHER_TECHNIQUE),
        ({"notes": "offload: offload-opt-m; other flags: --lmhead-chunks=4"}, SkipReason.OTHER_TECHNIQUE),  # one of two moments
        ({"precision": "nvfp4"}, SkipReason.OTHER_ARITHMETIC),
        ({"precision": "int8"}, SkipReason.OTHER_ARITHMETIC),
        ({"notes": "LoRA; quantization int8 (bnb)"}, SkipReason.OTHER_ARITHMETIC),
        ({"notes": "unpacked dataset: memory not comparable"}, SkipReason.FLAGGED),
        ({"step_time_s": None, "oom": None}, SkipReason.MEASURED_NOTHING),
    ],
)
def test_incomparable_rows_are_skipped_with_a_reason(cells, reason):
    with pytest.raises(Skipped) as skipped:
        case_of(made(**cells))
    assert skipped.value.reason is reason


def test_both_moments_in_host_memory_are_an_offloaded_optimizer():
    for notes in ("offload: offload-opt-v,offload-opt-m; other", "flags: --offload-opt-m --offload-opt-v"):
        assert case_of(made(notes=notes)).candidate.knobs.offload == "optimizer"


@pytest.mark.full
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.csv")), ids=lambda path: path.stem)
def test_at_least_90_percent_of_fully_stated_rows_of_each_source_are_used(path):
    """Of rows with a complete layout, model, batch and power limit that are not flagged as doubtful."""
    needed = ("n_gpus", "tp", "pp", "layers", "hidden", "seq_len")
    complete = [item for item in read_rows(path) if None not in [getattr(item, name) for name in needed]]
    stated = [item for item in complete if (item.dp_shard or item.dp_replicate) and (item.micro_batch or item.global_batch)]
    skipped = []
    for item in stated:
        try:
            case_of(item)
        except Skipped as skip:
            skipped.append(skip.reason)
    doubted = skipped.count(SkipReason.FLAGGED) + skipped.count(SkipReason.NO_POWER_LIMIT)
    assert len(skipped) - doubted <= 0.1 * (len(stated) - doubted), skipped


@pytest.mark.parametrize(
    "notes",
    [
        "accumulation 0", "grad_accum=0", "model-parallel size (TP x PP) = 0", "--lmhead-chunks=0",
        "expert ffn 0, 0 shared experts",
        "0 microbatches per step; accumulation 0", "trainable 0", "lora rank 0", "vocabulary about 0k", "vocab about 0.0001k",
        "ARGS: num-layers=12 moe-ffn-hidden-size=${X} kv-channels=None make-vocab-size-divisible-by=0 q-lora-rank=None",
        "ARGS: multi-latent-attention=True num-layers=x moe-layer-freq=([0]*99",
    ],
)  # fmt: skip
def test_nonsensical_notes_cause_no_error(notes):
    shapes = ({}, {"model": "MoE x", "layers": 2, "hidden": 64, "heads": 2, "experts": 4}, {"tp": None})
    for cells in shapes:
        try:
            case = case_of(made(notes=notes, **cells))
        except Skipped:
            continue
        assert case.accumulation >= 1
        assert case.candidate.knobs.micro_batch >= 1
