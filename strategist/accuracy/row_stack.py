"""Stack of a published run: the profile of its framework, changed by what the row states about kernels, gradients and the loss."""

from dataclasses import replace
from math import ceil, log2

from strategist.accuracy.row import Row
from strategist.accuracy.row_model import shape_of
from strategist.accuracy.text_columns import (
    ADAPTERS,
    ATTENTION_COLUMN,
    ATTENTION_KERNELS,
    ATTENTION_WORDS,
    BF16_GRADIENTS,
    CHUNKED_LOSS,
    COMPILED_LOGIT_BYTES,
    COMPILED_LOSS,
    DEFAULT_LOSS_CHUNKS,
    DEFAULT_TILE_TOKENS,
    DIRECT_FLASH_ATTENTION,
    DISPATCH,
    FLEX_ATTENTION,
    FLOAT8_BASE,
    FP16_ACCUMULATION,
    FP32_GRADIENTS,
    FUSED,
    FUSED_LOSS,
    GRADIENT_OFFLOAD,
    GRAPHS,
    HALF_LOGIT_BYTES,
    HEAD_CHUNKS,
    LOSS_CHUNKS,
    MASTER_WEIGHT_OFFLOAD,
    NOT_REENTRANT,
    OFFLOADED_LAYERS,
    RECOMPUTE_COLUMN,
    RECOMPUTE_DEFAULTS,
    RECOMPUTE_FLAGS,
    RECOMPUTE_WORDS,
    RECOMPUTED_FEED_FORWARD,
    RECOMPUTED_MODULES,
    RESIDUAL_OFFLOAD,
    TILE_TOKENS,
    TILED,
    TRANSFORMER_ENGINE_LAYERS,
    UNCHUNKED_LOSS,
    WHOLE_CHECKPOINTS,
    last_number,
    matched_value,
    stack_name,
    without_parentheses,
)
from strategist.contract.loss import Loss
from strategist.contract.memory_traits import MemoryTraits
from strategist.contract.stack import Stack
from strategist.cost.layer_widths import feed_forward_width
from strategist.profiles.stacks import load_stack

DEFAULT_VOCABULARY, DEFAULT_HIDDEN = 128256, 4096
"""Vocabulary and hidden size for a row with a fused loss that states neither."""


def stack_of(row: Row) -> Stack:
    """The framework's profile with the kernels and gradients that the row states."""
    stack = load_stack(stack_name(row.text))
    attention = matched_value(ATTENTION_COLUMN, row.flash_attention, matched_value(ATTENTION_WORDS, row.text, stack.attention))
    changes: dict[str, str | float | bool] = {"attention": attention}
    if recompute_mode(row) == "core_attention" and not DIRECT_FLASH_ATTENTION.search(row.flash_attention):
        changes["recomputes_attention"] = True
    if stack.family == "torch" and FP16_ACCUMULATION.search(row.notes):
        changes["fp16_sums"] = True
    changes["dispatch"] = matched_value(DISPATCH, row.notes, stack.dispatch)
    changes["graphs"] = matched_value(GRAPHS, row.notes, stack.graphs)
    flexes = stack.attention_kernels == "tuned_on_blackwell" and FLEX_ATTENTION.search(row.model)
    default_kernels = "portable" if flexes else stack.attention_kernels
    changes["attention_kernels"] = matched_value(ATTENTION_KERNELS, row.flash_attention, default_kernels)
    if FUSED.search(f"{row.text} ; {row.flash_attention}") or _has_transformer_engine(row, stack):
        changes["elementwise"] = "fused"
    if "grad_reduce_in_bf16" in row.settings or BF16_GRADIENTS.search(row.source):
        changes["gradient_bytes"] = 2.0
    elif FP32_GRADIENTS.search(row.notes):
        changes["gradient_bytes"] = 4.0
    if tile := last_number(TILE_TOKENS, row.notes):
        changes["tile_tokens"] = tile
    elif TILED.search(without_parentheses(row.text)):
        changes |= {"tile_tokens": float(row.hidden or DEFAULT_TILE_TOKENS), "tiles_recompute": True}
    if WHOLE_CHECKPOINTS.search(row.notes):
        changes["recomputes"] = "all"
    changes["adapters"] = matched_value(ADAPTERS, row.text, stack.adapters)
    return replace(stack, loss=_loss(row, stack.loss), memory_traits=_memory_traits(row, stack), **changes)  # type: ignore[arg-type]


def _has_transformer_engine(row: Row, stack: Stack) -> bool:
    """Whether a plain loop runs layers of Transformer Engine."""
    return stack.name == "torch" and bool(TRANSFORMER_ENGINE_LAYERS.search(row.text))


def _memory_traits(row: Row, stack: Stack) -> MemoryTraits:
    """The framework's memory traits, changed by the row's flags."""
    traits = stack.memory_traits
    changes: dict[str, str | float | bool] = {"layers_away": last_number(OFFLOADED_LAYERS, row.notes) or traits.layers_away}
    if NOT_REENTRANT.search(row.notes):
        changes["keeps_inputs"] = False
    if _has_transformer_engine(row, stack):
        changes["quantized_inputs"] = True
    if recomputes_feed_forward(row):
        model = shape_of(row)
        feed_forward = model.ffn_matrices * model.hidden_size * feed_forward_width(model)[0]
        changes["selective_matmuls"] = model.attention_parameters / (model.attention_parameters + feed_forward)
    if row.precision == "fp8" and FLOAT8_BASE.search(row.text):
        changes |= {"frozen_bytes": 1.0, "float8_activations": True}
    if MASTER_WEIGHT_OFFLOAD.search(row.notes) and not GRADIENT_OFFLOAD.search(row.notes):
        changes["gradients_on_host"] = "never"
    if (flags := recompute_flags(row)) and recompute_mode(row) == "selective":
        changes["selective_matmuls"] = _saved_share(row, flags)
    return replace(traits, **changes)  # type: ignore[arg-type]


def recomputed_modules(row: Row) -> frozenset[str]:
    """Modules of a Megatron layer that are recomputed."""
    modules = RECOMPUTED_MODULES.search(row.notes)
    return frozenset(modules[1].replace("'", "").replace(" ", "").split(",")) - {""} if modules else frozenset()


def recomputes_feed_forward(row: Row) -> bool:
    """Whether recomputation is selective, but repeats feed-forwards."""
    return not recomputed_modules(row).isdisjoint(RECOMPUTED_FEED_FORWARD) and recompute_mode(row) == "selective"


def recompute_flags(row: Row) -> frozenset[str]:
    """Parts of a layer that llm.q recomputes."""
    return frozenset(RECOMPUTE_FLAGS.findall(row.notes))


def _saved_share(row: Row, recomputed: frozenset[str]) -> float:
    """Share of matmul outputs that reproduces the activations that llm.q saves, beside a layer's input and the output of
    attention (src/models/llama_run_state.cpp: ``allocate_basic_fwd_tensors``; with float8 matmuls, norms and the product are
    also float8).
    """
    hidden_size, ffn_size, activation_size = row.hidden or 0, row.ffn or 0, 0.5 if row.precision == "fp8" else 1.0
    key_value = 2 * hidden_size * (row.kv_heads or 1) / (row.heads or 1)
    saved_size = 0.0 if RESIDUAL_OFFLOAD.search(row.notes) else float(hidden_size)
    saved_size += hidden_size  # the residual sum after attention
    saved_size += 0 if "att" in recomputed else 2 * hidden_size + key_value
    saved_size += 0 if recomputed & {"att", "norm"} else activation_size * hidden_size
    saved_size += 0 if recomputed & {"ffn", "norm"} else activation_size * hidden_size
    saved_size += 0 if "ffn" in recomputed else 2 * ffn_size
    saved_size += 0 if recomputed & {"ffn", "swiglu"} else activation_size * ffn_size
    return min(max((saved_size - 2 * hidden_size) / (3 * hidden_size + key_value + 2 * ffn_size), 0.0), 1.0)


def _loss(row: Row, stack_loss: Loss) -> Loss:
    """The framework's loss, in the chunks that the row states."""
    row_text = without_parentheses(row.text)
    if COMPILED_LOSS.search(row_text) and not stack_loss.compiled_logit_bytes:
        stack_loss = replace(stack_loss, compiled_logit_bytes=COMPILED_LOGIT_BYTES)
    if FUSED_LOSS.search(row_text):
        return replace(
            stack_loss,
            fused=True,
            chunks=1.0,
            chunk_tokens=_fused_tokens(row),
            logit_bytes=HALF_LOGIT_BYTES,
            cached_logit_bytes=0.0,
        )
    if chunks := last_number(HEAD_CHUNKS, row.notes):
        return replace(stack_loss, chunks=chunks)
    if UNCHUNKED_LOSS.search(row_text):
        return replace(stack_loss, chunks=1.0, chunk_tokens=0.0)
    chunks = last_number(LOSS_CHUNKS, row.notes) or (DEFAULT_LOSS_CHUNKS if CHUNKED_LOSS.search(row_text) else 0)
    if not chunks or stack_loss.chunks > 1 or stack_loss.chunk_tokens:
        return stack_loss
    return replace(stack_loss, chunks=chunks, kept_logit_bytes=HALF_LOGIT_BYTES)


def _fused_tokens(row: Row) -> float:
    """Tokens per chunk of Liger's loss: a power of two, such that the logits use no more memory than the hidden states
    (linkedin/Liger-Kernel, ops/fused_linear_cross_entropy.py: ``inc_factor``).
    """
    tokens = (row.seq_len or 0) * (row.micro_batch or 1) / (row.cp or 1)
    inc_factor = ceil((row.vocab or DEFAULT_VOCABULARY) / (row.hidden or DEFAULT_HIDDEN))
    return 2.0 ** ceil(log2(max(tokens / inc_factor, 1.0)))


def recompute_mode(row: Row) -> str:
    """Mode of activation checkpointing: the column's value, refined by the modules in the notes; otherwise by the notes, or the
    framework's default.
    """
    mode = matched_value(RECOMPUTE_COLUMN, row.ac_mode, "")
    if mode == "core_attention" and RECOMPUTED_MODULES.search(row.notes):
        return "selective" if recomputed_modules(row) - {"core_attn"} else mode
    return mode or matched_value(RECOMPUTE_WORDS, row.notes, matched_value(RECOMPUTE_DEFAULTS, row.text, ""))
