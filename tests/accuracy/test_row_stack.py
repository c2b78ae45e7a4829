"""Stacks of published rows: memory traits from their flags and sources."""

import pytest

from strategist.accuracy.case import case_of
from strategist.accuracy.row_model import shape_of
from tests.accuracy.published import made, row

LLMQ = {
    "source": "llmq benchmarks", "model": "x", "layers": 8, "hidden": 1024, "heads": 8, "kv_heads": 2, "ffn": 4096,
    "ac_mode": "selective_op",
}  # fmt: skip


@pytest.mark.parametrize(
    ("precision", "notes", "share"),
    [
        ("bf16", "flags: --recompute-ffn --recompute-att", 0),  # the layer's input, and the sum after attention
        ("bf16", "recompute: recompute-ffn,recompute-norm", 2.5 / 11.5),  # also queries, keys, values and attention's output
        ("bf16", "recompute: recompute-ffn,recompute-norm; offload: offload-residual", 1.5 / 11.5),
        ("bf16", "recompute: recompute-norm,recompute-swiglu", 10.5 / 11.5),  # also what goes into the activation: 8
        ("fp8", "recompute: recompute-swiglu", 11.5 / 11.5),  # also both norms' outputs, a byte each: 1
        ("fp8", "recompute: recompute-ffn", 3.0 / 11.5),
    ],
)
def test_llmq_recompute_flags_set_the_share_of_saved_matmul_outputs(precision, notes, share):
    """In units of the hidden size of 1024: keys and values are half, the feed-forward's inner tensors 4; outputs of matmuls are 3 +
    0.5 + 8.
    """
    found = case_of(made(**LLMQ, precision=precision, notes=notes)).stack
    assert found.memory_traits.selective_matmuls == pytest.approx(share)


def test_llmq_offload_flags_set_offload_and_resharding():
    def offload_settings(row_id):
        found = case_of(row("llmq_consumer_gpus", row_id))
        knobs = found.candidate.knobs
        return knobs.offload, knobs.reshard_after_forward, knobs.activation_offload, found.stack.memory_traits.gradients_on_host

    assert offload_settings("llmq-4090x1-3B-fp8") == ("all", False, False, "never")  # float8 copies of all weights
    assert offload_settings("llmq-4090x1-7B-bf16") == ("all", True, True, "never")  # two layers at a time
    assert offload_settings("llmq-4090x1-14B-bf16") == ("all", True, True, "all")
    assert offload_settings("llmq-H100x1-14B-bf16") == ("optimizer", False, False, "never")  # the master copy is the only one
    assert offload_settings("llmq-Pro6000x1-14B-bf16")[0] == "optimizer"


def test_llmq_shards_weights_and_gradients_separately():
    both = case_of(made(**LLMQ, zero_stage=0, notes="flags: --shard-weights --shard-gradients")).candidate.knobs
    weights = case_of(made(**LLMQ, zero_stage=None, notes="flags: --shard-weights")).candidate.knobs
    assert (both.reshard_after_forward, both.no_sync) == (True, False)
    assert (weights.reshard_after_forward, weights.no_sync) == (True, True)


def test_mlperf_lora_has_a_float8_base_and_adapters_on_attention():
    found = case_of(row("mlperf_training_41_50", "mlperf50-NVIDIA-nyx_n1_ngc25.04_nemo-llama2_70b_lora"))
    assert (found.stack.adapters, found.stack.memory_traits.frozen_bytes, found.stack.memory_traits.float8_activations) == (
        "attention",
        1.0,
        True,
    )
    assert found.stack.gradient_bytes == 2.0
    other = case_of(row("mlperf_training_41_50", "mlperf50-NVIDIA-eos-dfw_n64_ngc25.01_nemo-llama31_405b")).stack
    assert (other.memory_traits.frozen_bytes, other.memory_traits.float8_activations, other.gradient_bytes) == (2.0, False, 2.0)


def test_nemo_defaults_to_a_sharded_optimizer_and_micro_batch_one():
    found = case_of(row("nvidia_nemo", "long-h100-32k-cp")).candidate
    assert (found.layout.dp_replicate, found.layout.dp_shard, found.knobs.micro_batch) == (1, 8, 1)
    tuned = case_of(row("nvidia_nemo", "4c73f7-sft-LLAMA2-7B-8"))
    assert (tuned.candidate.layout.dp_shard, tuned.workload.precision) == (8, "bf16-true")
    assert case_of(made(zero_stage=None, dp_shard=None, dp_replicate=None)).candidate.layout.dp_replicate == 8


def test_the_number_of_layers_with_offloaded_activations_is_read():
    assert case_of(made(notes="cpu_offloading_num_layers=40, cuda_graph=None/None")).stack.memory_traits.layers_away == 40
    assert case_of(made(notes="cpu_offloading_num_layers=None")).stack.memory_traits.layers_away == 0


def test_bert_has_its_own_vocabulary():
    cells = {"layers": 24, "hidden": 1024, "heads": 16}
    assert shape_of(made(model="BERT 24L-1024", **cells)).vocab_size == 30522
    assert shape_of(made(model="GPT x", **cells)).vocab_size == 50257


def test_fsdp1_keeps_inputs_of_reentrant_checkpoints_alone():
    """transformers of 2024 use those unless a row says otherwise."""
    stated = {"source": "benchmarks, transformers 4.48.1", "notes": "LoRA rank 16"}
    kept, freed = (case_of(made(**{**stated, "notes": notes})).stack for notes in (stated["notes"], "LoRA; use_reentrant False"))
    assert kept.name == freed.name == "transformers-2024"
    assert (kept.memory_traits.keeps_inputs, freed.memory_traits.keeps_inputs) == (True, False)


@pytest.mark.parametrize(
    ("notes", "dispatch"),
    [
        ("MoE dispatcher NCCL all-to-all", "choices"),
        ("MoE dispatcher DeepEP (UCCL)", "ranks"),
        ("ARGS: moe-token-dispatcher-type=alltoall", "choices"),
        ("ARGS: moe-token-dispatcher-type=flex", "ranks"),
    ],
)
def test_the_stated_dispatcher_says_how_often_a_token_is_sent(notes, dispatch):
    assert case_of(made(source="NeMo performance", notes=notes)).stack.dispatch == dispatch


def test_recomputed_feed_forwards_are_repeated_with_their_exchanges():
    """Of Megatron's modules those that hold a layer's feed-forward; ``moe_act`` is elementwise."""
    named = {name: f"recompute_modules=['layernorm', '{name}']" for name in ("mlp", "moe_act")}
    repeated, kept = (case_of(made(ac_mode="selective", source="Megatron-LM", notes=notes)) for notes in named.values())
    model = repeated.model
    attention, feed_forward = model.attention_parameters, 3 * model.hidden_size * model.ffn_size
    assert repeated.stack.memory_traits.selective_matmuls == pytest.approx(attention / (attention + feed_forward))
    assert (kept.stack.memory_traits.selective_matmuls, repeated.candidate.knobs.saved_operations) == (1.0, "matmul+attention")


def test_layers_of_transformer_engine_in_a_plain_loop_are_fused_and_save_float8():
    engine, plain = (case_of(made(source=f"one GPU, {words}")).stack for words in ("Transformer Engine", "torch"))
    assert (engine.elementwise, engine.memory_traits.quantized_inputs) == ("fused", True)
    assert (plain.elementwise, plain.memory_traits.quantized_inputs) == ("eager", False)


def test_frameworks_that_compute_the_loss_in_the_model_compile_it():
    names = {words: case_of(made(source=words, compile=1)).stack for words in ("nanoGPT", "Hugging Face Trainer", "a loop")}
    assert [stack.name for stack in names.values()] == ["nanogpt", "hf-trainer", "torch"]
    assert [stack.loss.compiled_logit_bytes > 0 for stack in names.values()] == [True, True, False]


@pytest.mark.parametrize(
    ("words", "compiled"),
    [
        ("torch.compile of the model with its loss", True), ("compiled with the loss", True), ("loss is compiled", True),
        ("compiled model; loss uncompiled", False), ("compile of each block, eager loss", False),
    ],
)  # fmt: skip
def test_a_plain_loop_says_that_it_compiles_the_loss(words, compiled):
    found = case_of(made(source="a loop", compile=1, notes=words)).stack
    assert (found.name, found.loss.compiled_logit_bytes > 0) == ("torch", compiled)


def test_deepep_beside_another_trainer_sends_a_token_once_to_a_rank():
    assert case_of(row("nvidia_nemo", "automodel-pre-DeepSeek V3 671B-256")).stack.dispatch == "ranks"
