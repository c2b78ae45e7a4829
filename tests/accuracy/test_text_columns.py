"""Patterns over free-text columns of published rows."""

import pytest

from strategist.accuracy.text_columns import (
    ACCUMULATION,
    ACTUAL_BATCH,
    ATTENTION_COLUMN,
    LORA_RANK,
    OFFLOAD,
    OPTIMIZERS,
    PURE_BF16,
    RECOMPUTE_COLUMN,
    RECOMPUTE_WORDS,
    STACKS,
    TRAIN_MODES,
    TRAINED_PARAMETERS,
    UNRELIABLE,
    last_number,
    matched_value,
    settings,
    stated_rate,
    without_parentheses,
)


@pytest.mark.parametrize(
    ("text", "stack"),
    [
        ("hf_ultrascale_playbook nanotron", "nanotron"),
        ("Measured with Megatron-DeepSpeed (data/README)", "megatron-deepspeed"),
        ("EleutherAI GPT-NeoX", "megatron-deepspeed"),
        ("DeepSeek-V3 report, HAI-LLM", "megatron-core"),
        ("report of a user, Axolotl 0.16", "axolotl"),
        ("Hetu-Galvatron memory profile; Megatron sequence parallel", "galvatron"),
        ("OneFlow DLPerf (Megatron-LM)", "megatron-2021"),
        ("Megatron-Bridge performance summary", "nemo"),
        ("LLaMA-Factory baseline in llmq benchmarks; DeepSpeed ds_z3_offload.json", "deepspeed"),
        ("LLaMA-Factory baseline in llmq benchmarks; plain DDP", "hf-trainer"),
        ("llmq benchmarks", "llmq"),
        ("Megatron-SWIFT quick-start; script examples/megatron/benchmark/deepspeed.sh", "deepspeed"),
        ("RoundPipe (async optimizer)", "roundpipe"),
        ("Efficient parallelization layouts, arXiv 2311.05610", "aleph-alpha-scaling"),
        ("somebody's own loop", "torch"),
    ],
)
def test_the_most_specific_framework_name_wins(text, stack):
    assert matched_value(STACKS, text, "torch") == stack


@pytest.mark.parametrize(
    ("text", "train"),
    [
        ("QLoRA (4-bit base weights, bnb/hqq), NOT full training", "qlora"),
        ("LoRA (bf16 base weights), NOT full training; LoRA rank 64", "lora"),
        ("Adapter v2; quantization None; trainable 4,279,744", "lora"),
        ("LoRA; quantization bnb.nf4-dq", "qlora"),
        ("full-parameter SFT", "full"),
        ("each technique is added to the previous one (LoRA/QLoRA rows do not use optimizer_in_bwd)", "full"),
    ],
)
def test_train_mode_is_read_outside_of_parentheses(text, train):
    assert matched_value(TRAIN_MODES, without_parentheses(text), "full") == train


@pytest.mark.parametrize(
    ("cell", "kernel"),
    [
        ("1", "flash"), ("0", "unfused"), ("1.0", "flash"), ("0.0", "unfused"), ("flash", "flash"), ("flash_attention2", "flash"),
        ("FlashAttention-1", "flash"), ("fused", "flash"), ("sdpa", "flash"), ("unfused", "unfused"), ("torch", "unfused"),
        ("none (Megatron fused softmax)", "unfused"), ("megatron", "unfused"), ("", "unknown"),
    ],
)  # fmt: skip
def test_attention_kernel_column(cell, kernel):
    assert matched_value(ATTENTION_COLUMN, cell, "unknown") == kernel


@pytest.mark.parametrize(
    ("cell", "mode"),
    [
        ("full", "full"), ("every_layer", "full"), ("selective_op", "selective"), ("selective_layer", "every_second_layer"),
        ("megatron_selective", "core_attention"), ("none", "none"), ("disabled", "none"), ("", ""),
    ],
)  # fmt: skip
def test_activation_checkpointing_column(cell, mode):
    assert matched_value(RECOMPUTE_COLUMN, cell, "") == mode


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("no gradient checkpointing (README text)", "none"),
        ("yaml: activation_checkpointing false, LBS 1", "none"),
        ("recompute_modules=[]; status=OOM", "none"),
        ("recompute_modules=['core_attn']; status=passed", "core_attention"),
        ("recompute_modules=['mlp', 'core_attn']", "selective"),
        ("HF layer gradient checkpointing, no offload", "full"),
        ("activation_checkpointing: true, reshard_after_forward false", "full"),
        ("activation checkpoint mode not stated per row", ""),
        ("recompute_modules=None", ""),
    ],
)
def test_activation_checkpointing_notes(text, mode):
    assert matched_value(RECOMPUTE_WORDS, text, "") == mode


@pytest.mark.parametrize(
    ("text", "offload"),
    [
        ("ZeRO-3 with CPU offload of parameters (pinned) and optimizer", "all"),
        ("ZeRO-2 with CPU optimizer offload", "optimizer"),
        ("DeepSpeed ZeRO-3; optimizer CPU offload", "optimizer"),
        ("offload: offload-opt-m,offload-opt-v,offload-master", "optimizer"),
        ("RoundPipe (async optimizer)", "streamed"),
        ("fp32 gradient reduce, no offload", "none"),
        ("act CPU offload False", "none"),
    ],
)
def test_offload_notes(text, offload):
    assert matched_value(OFFLOAD, text, "none") == offload


@pytest.mark.parametrize(
    ("text", "optimizer"),
    [("AdamW8bit", "adamw8bit"), ("adamw ao 4-bit", "adamw8bit"), ("muon", "muon"), ("adamw (bf16 m/v states)", "adamw_bf16"),
     ("apex fused adam", "adamw")],
)  # fmt: skip
def test_optimizer_names(text, optimizer):
    assert matched_value(OPTIMIZERS, text, "adamw") == optimizer


def test_pure_half_precision_is_not_mixed_precision():
    assert PURE_BF16.search("single GPU; bf16-true; memory kind")
    assert PURE_BF16.search("bf16 weights and HF AdamW")
    assert not PURE_BF16.search("precision amp_bf16; bf16 mixed precision")


def test_the_last_mention_of_a_number_wins():
    assert last_number(LORA_RANK, 'LoRA rank 8 SFT, section "LoRA Rank"; lora rank 2, target ALL') == 2
    assert last_number(TRAINED_PARAMETERS, "trainable 1,572,864; 1.77 min") == 1_572_864
    assert last_number(ACCUMULATION, "grad_accum=16; TP mode") == 16
    assert last_number(ACCUMULATION, "accumulation 32; source") == 32
    assert last_number(ACTUAL_BATCH, "grad_accum=4 (mbs*ga*dp=16 != GBS 256 in source)") == 16
    assert last_number(ACCUMULATION, "nothing of the kind") is None


def test_settings_are_read_as_key_value_pairs():
    found = settings("num-query-groups=8 swiglu=True moe-layer-freq=([0]*3+[1]*12) Fp8-format=e4m3, no_equals")
    assert found == {"num_query_groups": "8", "swiglu": "True", "moe_layer_freq": "([0]*3+[1]*12", "fp8_format": "e4m3"}


@pytest.mark.parametrize(
    "text", ["WARNING: 16 of 8", "STALE? changed 4 days after", "source is inconsistent", "LOW TRUST for time"]
)
def test_doubtful_rows_are_flagged(text):
    assert UNRELIABLE.search(text)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("800 Gb/s RDMA", (100e9, "")),
        ("RDMA 400 Gb/s per GPU", (50e9, "gpu")),
        ("1600 Gbps node-node (RoCE)", (200e9, "node")),
        ("P2P 52.8 GB/s unidirectional", (52.8e9, "")),
        ("EFA v2 3.2 Tb/s per node (32x EFA)", (400e9, "node")),
        ("8x ConnectX-7 IB NDR 400Gb/s", (400e9, "node")),
        ("InfiniBand 8x50 GB/s", (400e9, "node")),
        ("Storage: 2x ConnectX-7 IB NDR 400Gb/s, Compute: 4x ConnectX-7 IB NDR 400Gb/s, Management: 25Gb/s", (200e9, "node")),
        ("InfiniBand", None),
    ],
)
def test_stated_link_rates(text, rate):
    found = stated_rate(text)
    assert (found and (found.bytes_per_second, found.per)) == rate
