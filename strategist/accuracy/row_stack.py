"""Stack of a published run: the profile of its framework, changed by what the row states about kernels, gradients and the loss."""

from dataclasses import replace
from math import ceil, log2

from strategist.accuracy.row import Row
from strategist.accuracy.text_columns import (
    ADAPTERS,
    ATTENTION,
    ATTENTION_WORDS,
    CHUNKED_LOSS,
    DEFAULT_LOSS_CHUNKS,
    DEFAULT_TILE_TOKENS,
    DISPATCH,
    FLOAT8_BASE,
    FP16_SUMS,
    FUSED,
    FUSED_LOSS,
    GRADIENTS_AWAY,
    GRAPHS,
    HALF_GRADIENTS,
    HALF_LOGIT_BYTES,
    HEAD_CHUNKS,
    LAYERS_AWAY,
    LOSS_CHUNKS,
    MASTER_AWAY,
    NOT_REENTRANT,
    RECOMPUTE,
    RECOMPUTE_FLAGS,
    RECOMPUTE_USUAL,
    RECOMPUTE_WORDS,
    RECOMPUTED_MODULES,
    RESIDUAL_AWAY,
    STACKS,
    TILE_TOKENS,
    TILED,
    TUNED_ATTENTION,
    WHOLE_GRADIENTS,
    WHOLE_LOSS,
    first,
    number,
    plain,
)
from strategist.contract.loss import Loss
from strategist.contract.memory_traits import MemoryTraits
from strategist.contract.stack import Stack
from strategist.profiles.stacks import load_stack

DEFAULT_VOCABULARY, DEFAULT_HIDDEN = 128256, 4096
"""Vocabulary and hidden size for a row with a fused loss that states neither."""


def stack_of(row: Row) -> Stack:
    """The framework's profile with the kernels and gradients that the row states."""
    stack = load_stack(first(STACKS, row.text, "torch"))
    attention = first(ATTENTION, row.flash_attention, first(ATTENTION_WORDS, row.text, stack.attention))
    if recomputed(row) == "core_attention":
        attention = "flash"  # attention scores are recomputed instead of saved, as flash attention does
    changes: dict[str, str | float | bool] = {"attention": attention}
    if stack.family == "torch" and FP16_SUMS.search(row.notes):
        changes["fp16_sums"] = True
    changes["dispatch"] = first(DISPATCH, row.notes, stack.dispatch)
    changes["graphs"] = first(GRAPHS, row.notes, stack.graphs)
    if TUNED_ATTENTION.search(row.flash_attention):
        changes["attention_kernels"] = "tuned"
    if FUSED.search(f"{row.text} ; {row.flash_attention}"):
        changes["elementwise"] = "fused"
    if "grad_reduce_in_bf16" in row.settings or HALF_GRADIENTS.search(row.source):
        changes["gradient_bytes"] = 2.0
    elif WHOLE_GRADIENTS.search(row.notes):
        changes["gradient_bytes"] = 4.0
    if tile := number(TILE_TOKENS, row.notes):
        changes["tile_tokens"] = tile
    elif TILED.search(plain(row.text)):
        changes |= {"tile_tokens": float(row.hidden or DEFAULT_TILE_TOKENS), "tiles_recompute": True}
    changes["adapters"] = first(ADAPTERS, row.text, stack.adapters)
    return replace(stack, loss=_loss(row, stack.loss), memory_traits=_memory_traits(row, stack.memory_traits), **changes)  # type: ignore[arg-type]


def _memory_traits(row: Row, usual: MemoryTraits) -> MemoryTraits:
    """The framework's memory traits, changed by the row's flags."""
    changes: dict[str, str | float | bool] = {"layers_away": number(LAYERS_AWAY, row.notes) or usual.layers_away}
    if NOT_REENTRANT.search(row.notes):
        changes["keeps_inputs"] = False
    if row.precision == "fp8" and FLOAT8_BASE.search(row.text):
        changes |= {"frozen_bytes": 1.0, "float8_activations": True}
    if MASTER_AWAY.search(row.notes) and not GRADIENTS_AWAY.search(row.notes):
        changes["gradients_on_host"] = "never"
    if (flags := recompute_flags(row)) and recomputed(row) == "selective":
        changes["selective_matmuls"] = _saved_share(row, flags)
    return replace(usual, **changes)  # type: ignore[arg-type]


def recompute_flags(row: Row) -> frozenset[str]:
    """Parts of a layer that llm.q recomputes."""
    return frozenset(RECOMPUTE_FLAGS.findall(row.notes))


def _saved_share(row: Row, again: frozenset[str]) -> float:
    """Share of matmul outputs that reproduces the activations that llm.q saves, beside a layer's input and the output of
    attention (src/models/llama_run_state.cpp: ``allocate_basic_fwd_tensors``; with float8 matmuls, norms and the product are
    also float8).
    """
    hidden, inner, each = row.hidden or 0, row.ffn or 0, 0.5 if row.precision == "fp8" else 1.0
    key_value = 2 * hidden * (row.kv_heads or 1) / (row.heads or 1)
    saved = 0.0 if RESIDUAL_AWAY.search(row.notes) else float(hidden)
    saved += hidden  # the residual sum after attention
    saved += 0 if "att" in again else 2 * hidden + key_value
    saved += 0 if again & {"att", "norm"} else each * hidden
    saved += 0 if again & {"ffn", "norm"} else each * hidden
    saved += 0 if "ffn" in again else 2 * inner
    saved += 0 if again & {"ffn", "swiglu"} else each * inner
    return min(max((saved - 2 * hidden) / (3 * hidden + key_value + 2 * inner), 0.0), 1.0)


def _loss(row: Row, usual: Loss) -> Loss:
    """The framework's loss, in the chunks that the row states."""
    row_text = plain(row.text)
    if FUSED_LOSS.search(row_text):
        return replace(
            usual, fused=True, chunks=1.0, chunk_tokens=_fused_tokens(row), logit_bytes=HALF_LOGIT_BYTES, cached_logit_bytes=0.0
        )
    if chunks := number(HEAD_CHUNKS, row.notes):
        return replace(usual, chunks=chunks)
    if WHOLE_LOSS.search(row_text):
        return replace(usual, chunks=1.0, chunk_tokens=0.0)
    if (chunks := number(LOSS_CHUNKS, row.notes)) or CHUNKED_LOSS.search(row_text):
        own = usual.chunks > 1 or usual.chunk_tokens
        return usual if own else replace(usual, chunks=chunks or DEFAULT_LOSS_CHUNKS, kept_logit_bytes=HALF_LOGIT_BYTES)
    return usual


def _fused_tokens(row: Row) -> float:
    """Tokens per chunk of Liger's loss: a power of two, such that the logits use no more memory than the hidden states
    (linkedin/Liger-Kernel, ops/fused_linear_cross_entropy.py: ``inc_factor``).
    """
    tokens = (row.seq_len or 0) * (row.micro_batch or 1) / (row.cp or 1)
    times = ceil((row.vocab or DEFAULT_VOCABULARY) / (row.hidden or DEFAULT_HIDDEN))
    return 2.0 ** ceil(log2(max(tokens / times, 1.0)))


def recomputed(row: Row) -> str:
    """Mode of activation checkpointing: the column's value, refined by the modules in the notes; otherwise by the notes, or the
    framework's default.
    """
    mode = first(RECOMPUTE, row.ac_mode, "")
    modules = RECOMPUTED_MODULES.search(row.notes)
    if mode == "core_attention" and modules:
        others = set(modules[1].replace("'", "").replace(" ", "").split(",")) - {"", "core_attn"}
        return "selective" if others else mode
    return mode or first(RECOMPUTE_WORDS, row.notes, first(RECOMPUTE_USUAL, row.text, ""))
