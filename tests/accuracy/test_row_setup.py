"""Layouts, batches, workloads, stacks and knobs of published rows."""

import pytest

from strategist.accuracy.case import case_of
from strategist.accuracy.row_setup import batch_of, layout_of
from strategist.accuracy.skip_reason import Skipped, SkipReason
from strategist.contract.layout import Layout
from tests.accuracy.published import made, row, rows

GPT = {"model": "GPT x", "layers": 8, "hidden": 512, "heads": 8, "vocab": 50304}


def knobs(**cells):
    return case_of(made(**cells)).candidate.knobs


def stack(**cells):
    return case_of(made(**cells)).stack


def workload(**cells):
    return case_of(made(**cells)).workload


@pytest.mark.parametrize(
    ("cells", "layout"),
    [
        ({}, Layout(dp_shard=8)),
        ({"dp_shard": 8, "zero_stage": 0}, Layout(dp_replicate=8)),
        ({"dp_shard": 1, "dp_replicate": 8, "zero_stage": 1}, Layout(dp_shard=8)),
        ({"dp_shard": 4, "dp_replicate": 2}, Layout(dp_shard=4, dp_replicate=2)),
        ({"tp": 2, "pp": 2, "dp_shard": 2, "zero_stage": 1}, Layout(tp=2, pp=2, dp_shard=2)),
        ({"dp_shard": None, "dp_replicate": None, "zero_stage": None}, Layout(dp_replicate=8)),
        ({"dp_shard": None, "dp_replicate": None}, Layout(dp_shard=8)),
        ({"cp": 4, "dp_shard": 2}, Layout(cp=4, dp_shard=2)),
        ({"dp_shard": 1, "dp_replicate": 1, "zero_stage": 0, "n_gpus": 2}, Layout(pp=2)),
        ({"tp": None, "pp": None, "dp_shard": None, "schedule": "RoundPipe (sync optimizer)"}, Layout(pp=8)),
        ({"tp": None, "pp": None, "dp_shard": None, "n_gpus": 64, "notes": "model-parallel size (TP x PP) = 16"},
         Layout(tp=8, pp=2, dp_replicate=1, dp_shard=4)),
    ],
)  # fmt: skip
def test_layout_from_degrees_and_zero_stage(cells, layout):
    found = made(**cells)
    assert layout_of(found, found.n_gpus) == layout


@pytest.mark.parametrize(
    "cells",
    [
        {"tp": None},
        {"tp": 3},
        {"dp_shard": 4, "dp_replicate": 1},
        {"n_gpus": None, "dp_shard": None, "dp_replicate": None},
    ],
)
def test_unstated_degrees_or_a_product_other_than_the_gpus_are_skipped(cells):
    with pytest.raises(Skipped) as skipped:
        layout_of(made(**cells), 8)
    assert skipped.value.reason is SkipReason.NO_LAYOUT


@pytest.mark.parametrize(
    ("layout", "cells", "expected"),
    [
        (Layout(dp_shard=8), {}, (1, 16, 2)),
        (Layout(dp_shard=8), {"micro_batch": None}, (2, 16, 1)),
        (Layout(pp=4, dp_shard=2), {"micro_batch": None}, (1, 16, 8)),
        (Layout(dp_shard=8), {"global_batch": None, "micro_batch": 4}, (4, 32, 1)),
        (Layout(dp_shard=8), {"global_batch": None, "notes": "gradient accumulation 4"}, (1, 32, 4)),
        (Layout(pp=4, dp_shard=2), {"global_batch": None}, (1, 8, 4)),
        (Layout(dp_shard=8), {"global_batch": None, "micro_batch": None}, (1, 8, 1)),
        (Layout(dp_shard=8), {"global_batch": 256, "notes": "grad_accum=4 (mbs*ga*dp=32 != GBS 256 in source)"}, (1, 32, 4)),
        (Layout(pp=8), {"micro_batch": None, "global_batch": 512, "notes": "10 microbatches per accumulation step; accumulation 4"},
         (13, 512, 39)),
        (Layout(pp=4, dp_shard=2), {"micro_batch": None, "global_batch": 64, "notes": "default at 9d = pp degree"}, (8, 64, 4)),
    ],
)  # fmt: skip
def test_batch_and_accumulation_from_cells_and_notes(layout, cells, expected):
    found = batch_of(made(**cells), layout, 8)
    assert (found.micro_batch, found.global_batch, found.accumulation) == expected


def test_a_sequence_length_from_the_notes_is_a_guess_without_step_time():
    found = batch_of(made(seq_len=None, notes="seq_len not stated here (script default 4096)"), Layout(dp_shard=8), 8)
    assert (found.seq_len, found.stated) == (4096, False)
    guessed = case_of(made(seq_len=None, notes="seq_len not stated here (script default 4096)"))
    assert guessed.step_seconds is None
    assert guessed.oom is False


@pytest.mark.parametrize(
    "cells",
    [
        {"seq_len": None},
        {"global_batch": 4},
        {"tp": None, "global_batch": None, "micro_batch": None},
    ],
)
def test_unstated_or_too_small_batches_are_skipped(cells):
    with pytest.raises(Skipped) as skipped:
        batch_of(made(**cells), Layout(dp_shard=8), 8)
    assert skipped.value.reason is SkipReason.NO_BATCH


def test_device_map_is_a_pipeline_with_one_micro_batch_at_a_time():
    with_device_map = next(item for item in rows("ms_swift") if "device_map" in item.notes and item.n_gpus == 2)
    case = case_of(with_device_map)
    assert case.candidate.layout == Layout(pp=2)
    assert (case.accumulation, case.workload.global_batch) == (1, with_device_map.micro_batch)


@pytest.mark.parametrize(
    ("cells", "precision"),
    [
        ({"precision": "bf16"}, "bf16"),
        ({"precision": "fp8"}, "bf16"),
        ({"precision": ""}, "bf16"),
        ({"precision": "", "gpu": "V100", "gpu_mem_gb": 32}, "fp16"),
        ({"precision": "", "notes": "dtype FP32; peak"}, "fp32"),
        ({"notes": "bf16-true; memory"}, "bf16-true"),
        ({"source": "torchtune README"}, "bf16-true"),
        ({"optimizer": "adamw (bf16 m/v states, bf16 master)"}, "bf16-true"),
    ],
)
def test_precision_from_cells_notes_and_device(cells, precision):
    assert workload(**cells).precision == precision


def test_the_train_mode_does_not_come_from_the_sources_name():
    trains = {
        row_id: case_of(row("fsdp_qlora_24gb", row_id)).workload.train for row_id in ("3090-7b-qlora-512-b1", "3090-7b-lora-512-b1")
    }
    assert trains == {"3090-7b-qlora-512-b1": "qlora", "3090-7b-lora-512-b1": "lora"}


def test_lora_rank_is_stated_or_follows_from_the_trainable_parameters():
    assert workload(notes="LoRA rank 8 SFT; lora rank 2").lora_rank == 2
    stated = workload(notes="LoRA rank 8 SFT")
    assert (stated.train, stated.lora_rank) == ("lora", 8)
    few, many = (workload(notes=f"LoRA; trainable {count}") for count in ("5,242,880", "41,943,040"))
    assert (few.lora_rank, many.lora_rank) == (2, 16)


def test_the_optimizer_comes_from_its_column_then_from_the_notes():
    assert workload(optimizer="AdamW8bit").optimizer == "adamw8bit"
    assert workload(optimizer="adamw", notes="as with 8-bit AdamW").optimizer == "adamw"
    assert workload(notes="recipe uses PagedAdamW8bit").optimizer == "adamw8bit"
    assert workload(**GPT, notes="ARGS: num-layers=8 optimizer=muon").optimizer == "muon"


def test_attention_kernels_come_from_column_notes_or_framework():
    assert stack(source="Megatron-LM (2021)").attention == "unfused"
    assert stack(source="Megatron-LM (2021)", flash_attention="1").attention == "flash"
    assert stack(flash_attention="none (Megatron fused softmax)").attention == "unfused"
    assert stack(notes="no flash attention (2022) inferred").attention == "unfused"
    assert stack(flash_attention="flash", notes="transformer-impl=local").attention == "flash"


def test_the_column_names_the_kernels_of_flash_attention():
    nemo = {"source": "nvidia_nemo NeMo-Framework-Launcher"}
    assert stack(**nemo).attention_kernels == "tuned"
    assert stack(**nemo, flash_attention="te, FlashAttention-2 inferred").attention_kernels == "portable"
    assert [stack(flash_attention=name).attention_kernels for name in ("fa1", "fa2", "cudnn", "fa3")] == [
        "first", "portable", "tuned", "tuned",
    ]  # fmt: skip
    assert stack(flash_attention="cudnn shadow").attention_kernels == "portable"


def test_packed_documents_are_read_from_the_notes():
    assert workload(notes="fine-tuning on SQuAD packed to 4096 tokens; documents of 200 tokens inferred").document_tokens == 200
    assert workload(notes="sequences packed to 4096 tokens").document_tokens == 0


def test_selective_recomputation_of_core_attention_keeps_its_kernels():
    selective = {"source": "Megatron-LM (2021)", "ac_mode": "megatron_selective"}
    found = stack(**selective)
    assert (found.attention, found.recomputes_attention, knobs(**selective).recompute) == ("unfused", True, "none")
    assert not stack(**selective, flash_attention="fa1").recomputes_attention  # called outside of the checkpoint
    assert not stack(**(selective | {"ac_mode": "none"})).recomputes_attention
    assert knobs(ac_mode="megatron_selective", notes="recompute_modules=['moe_act', 'layernorm']").recompute == "selective"


def test_gradient_dtype_is_the_frameworks_unless_the_row_states_another():
    assert stack(source="DeepSpeed").gradient_bytes == 2
    assert knobs(source="DeepSpeed").reduce_dtype == "bf16"
    assert stack(source="DeepSpeed", notes="fp32 unsharded grad accumulation").gradient_bytes == 4
    assert stack(**GPT, notes="ARGS: num-layers=8 grad-reduce-in-bf16=True").gradient_bytes == 2
    half = made(notes="fp32 sharded parameters with fp16 compute and fp16 reduce")
    assert (case_of(half).stack.gradient_bytes, case_of(half).candidate.knobs.reduce_dtype) == (4, "bf16")


def test_b200_implies_a_2025_release_of_torchtitan():
    assert stack(source="torchtitan", notes="8xB200").name == "torchtitan-2025"
    assert stack(source="torchtitan", notes="8xH100").name == "torchtitan"


def test_settings_of_the_aleph_alpha_sweep():
    sweep = {"source": "Efficient parallelization layouts (arXiv 2311.05610)", "tp": 2, "dp_shard": 4, "zero_stage": 1}
    assert stack(**sweep).gradient_bytes == 2
    found = knobs(**sweep)
    assert (found.reduce_dtype, found.loss_parallel, found.sequence_parallel) == ("fp32", False, False)
    assert stack(**sweep, flash_attention="torch").attention == "unfused"
    assert stack(**sweep, flash_attention="flash_attention2").attention == "flash"
    assert stack(**sweep, notes="FlashAttention-2, RMSNorm kernel").elementwise == "fused"
    assert stack(**sweep, notes="FlashAttention-2, no RMSNorm kernel").elementwise == "eager"
    assert knobs(**sweep, ac_mode="every_layer").recompute == "full"


def test_loss_chunks_come_from_the_row_or_the_framework():
    assert (stack().loss.chunks, stack().loss.chunk_tokens) == (1, 0)
    assert (stack(source="torchtune README").loss.chunks, stack(source="torchtune README").loss.kept_logit_bytes) == (8, 2)
    assert stack(notes="other flags: --lmhead-chunks=4").loss.chunks == 4
    assert stack(notes="chunked NLL loss").loss.chunks == 8
    assert stack(source="TRL", notes="chunked NLL loss").loss.chunk_tokens == 256
    assert stack(notes="(rows above with chunked cross entropy)").loss.chunks == 1
    fused = stack(notes="liger kernel + FA2", seq_len=8192, micro_batch=1, vocab=128256, hidden=4096).loss
    assert (fused.fused, fused.chunk_tokens) == (True, 256)  # 8192 tokens / ceil(128256 / 4096), to a power of two


def test_zero_stages_set_resharding_and_no_sync():
    by_stage = {stage: knobs(zero_stage=stage) for stage in (1, 2, 3)}
    assert [by_stage[stage].reshard_after_forward for stage in (1, 2, 3)] == [False, False, True]
    assert [by_stage[stage].no_sync for stage in (1, 2, 3)] == [True, False, False]
    assert knobs(notes="no_sync on all but the last accumulation step").no_sync


def test_sequence_parallelism_comes_from_the_row_or_the_framework():
    wide = {"tp": 8, "dp_shard": 1, "zero_stage": 1}
    assert knobs(**wide, source="nanotron").sequence_parallel
    assert not knobs(**wide, source="nanotron", sp=0).sequence_parallel
    assert not knobs(**wide, source="Megatron-DeepSpeed").sequence_parallel
    assert knobs(**wide, source="Megatron-DeepSpeed", sp=1).sequence_parallel


@pytest.mark.parametrize(
    ("cells", "schedule"),
    [
        ({}, ("1f1b", 1)),
        ({"schedule": "GPipe"}, ("gpipe", 1)),
        ({"schedule": "interleaved 1F1B"}, ("interleaved_1f1b", 2)),
        ({"vpp": 4}, ("interleaved_1f1b", 4)),
        ({"schedule": "zero bubble V"}, ("zbv_zero_bubble", 2)),
    ],
)
def test_pipeline_schedule_and_virtual_stages_from_cells(cells, schedule):
    found = knobs(pp=4, dp_shard=2, zero_stage=1, **cells)
    assert (found.pp_schedule, found.pp_virtual_stages) == schedule


def test_unstated_recomputation_is_the_frameworks_default():
    assert knobs(source="torchtitan").recompute == "selective"
    assert knobs(source="torchtune").recompute == "full"
    assert knobs(source="torchtune", ac_mode="none").recompute == "none"
    assert knobs().recompute == "none"


def test_techniques_of_a_shipped_row():
    found = case_of(row("pytorch_torchtune_torchao", "tt-flags-5"))
    assert found.candidate.knobs.optimizer_in_backward
    assert found.candidate.knobs.compile
    assert found.candidate.knobs.recompute == "full"
    assert found.workload.precision == "bf16-true"
    earlier = case_of(row("pytorch_torchtune_torchao", "tt-flags-4"))
    assert not earlier.candidate.knobs.optimizer_in_backward
    assert case_of(row("pytorch_torchtune_torchao", "tt-flags-9")).workload.train == "qlora"


def test_recompute_modules_in_the_notes_refine_recomputation():
    def listed(modules):
        return knobs(ac_mode="megatron_selective", notes=f"recompute_modules=[{modules}]").recompute

    assert listed("'core_attn'") == knobs(ac_mode="megatron_selective").recompute
    assert listed("'core_attn', 'mlp'") == "selective"


def test_float8_by_recipe():
    assert knobs(precision="fp8").float8 == "tensorwise"
    assert knobs(precision="fp8", fp8_recipe="rowwise_with_gw_hp").float8 == "rowwise"
    assert knobs().float8 == "none"


def test_cuda_graphs_come_from_the_recipe_or_the_release():
    assert stack(notes="container 26.04; cuda_graph=full_iteration/[]").graphs == "step"
    assert stack(notes="container 26.06; cuda_graph=transformer_engine/['attn']").graphs == "layers"
    assert stack(notes="container 26.08; cuda_graph=None/[]").graphs == "none"
    assert [stack(notes=f"container {release}; task pretrain").graphs for release in ("26.04", "26.08")] == ["none", "step"]


def test_lora_in_the_models_name_or_row_id_sets_the_train_mode():
    assert workload(model="Llama 2 70B (LoRA r=16, qkv+proj; base frozen)").train == "lora"
    assert workload(row_id="x_nemo-llama2_70b_lora").train == "lora"


def test_unstated_virtual_stages_of_interleaved_schedules():
    """Llama 3 8B has 32 layers. Stages have two layers by default; torchtitan assigns two stages to each rank."""
    cells = {"pp": 4, "dp_shard": 2, "zero_stage": 1, "layers": 32, "schedule": "interleaved 1F1B"}
    nemo = knobs(**cells, source="NeMo")
    assert (nemo.pp_schedule, nemo.pp_virtual_stages) == ("interleaved_1f1b", 4)
    assert knobs(**cells, source="torchtitan").pp_virtual_stages == 2
    assert knobs(**cells, vpp=8).pp_virtual_stages == 8
    overlapped = {**cells, "schedule": "", "source": "Megatron-LM README", "notes": "all overlap features (PP overlap)"}
    assert knobs(**overlapped).pp_virtual_stages == 4


def test_activation_offload_and_tiled_mlp_are_read_from_the_notes():
    cells = {"cp": 8, "dp_shard": 1, "seq_len": 2**20, "global_batch": 1, "ac_mode": "full"}
    notes = "chunked NLL loss; gradient-checkpoint offload to host"
    assert knobs(**cells, notes=notes).activation_offload
    assert not knobs(**cells, notes="without gradient-checkpoint offload it does not fit").activation_offload
    assert stack(**cells, notes="feed-forward tiled by 16384 tokens").tile_tokens == 16384
    alst = stack(**cells, notes="TiledMLP", hidden=4096)
    assert (alst.tile_tokens, alst.tiles_recompute) == (4096, True)
    assert stack(**cells, flash_attention="sdpa/cuDNN ring").attention_kernels == "tuned"


@pytest.mark.parametrize(
    ("cells", "overlap", "schedule"),
    [
        ({"ep": 8, "notes": "1F1B A2A overlap on"}, True, "1f1b"),
        ({"ep": 8, "notes": "1F1B A2A overlap off"}, False, "1f1b"),
        ({"ep": 8, "notes": "ARGS: overlap-moe-expert-parallel-comm=True"}, True, "1f1b"),
        ({"notes": "EP comm overlap on"}, False, "1f1b"),
        ({"ep": 4, "pp": 2, "dp_shard": 4, "notes": "EP comm overlap on", "source": "NeMo performance"}, True, "interleaved_1f1b"),
        ({"ep": 4, "pp": 2, "dp_shard": 4, "schedule": "DualPipe"}, True, "dual_pipe_v"),
    ],
)  # fmt: skip
def test_overlap_of_expert_exchanges_and_the_schedules_that_it_implies(cells, overlap, schedule):
    found = knobs(**cells)
    assert (found.ep_overlap, found.pp_schedule) == (overlap, schedule)
