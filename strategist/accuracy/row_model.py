"""Model of a published row: a preset with the row's changes, or the row's own sizes."""

import re
from dataclasses import replace
from functools import cache

from strategist.accuracy.row import Row
from strategist.accuracy.skip_reason import Skipped, SkipReason
from strategist.accuracy.text_columns import (
    EXPERT_WIDTH,
    FIRST_DENSE_LAYERS,
    HALF_LAYERS,
    SHARED_EXPERTS,
    VOCABULARY,
    last_number,
    matched_value,
    stack_name,
)
from strategist.contract.model import MLAShape, ModelShape, MoEShape
from strategist.errors import StrategistError
from strategist.profiles.models import find_preset

GATED_FAMILIES = re.compile(
    r"llama|qwen|mistral|mixtral|zephyr|deepseek|gemma|\byi\b|yi-|baichuan|internlm|glm-?[0-9]|gpt-oss|moonlight|kimi|swiglu|openbuddy|"
    r"skywork|phi-[34]|xverse|olmo|granite|smollm|minicpm|vicuna|command-r|ernie|hunyuan|seed-oss|dbrx|grok",
    re.IGNORECASE,
)
"""Families with gated feed-forwards (three matrices); GPT, BERT, MPT, OPT, Falcon and similar models have two."""

BIASED_FAMILIES = re.compile(r"gpt|bert|\bopt\b|pythia|bloom|neox", re.IGNORECASE)
"""Families with two-matrix feed-forwards whose linears have biases; MPT, Falcon and Nemotron have none."""

PADDED_VOCABULARY_STACKS = ("megatron-core", "nemo", "megatron-2021", "oneflow", "megatron-deepspeed")
UNTIED_STACKS = ("galvatron",)
"""Stacks whose embedding and head are separate matrices in every model."""

VOCABULARY_MULTIPLE = 128
"""Megatron pads the vocabulary to a multiple of 128 x tp (``--make-vocab-size-divisible-by``)."""

GPT2_VOCABULARY, BERT_VOCABULARY = 50257, 30522
"""Default vocabulary sizes: BERT's for BERT models, otherwise that of GPT-2."""

_TIED = re.compile(r"tied? embeddings? for ([\w./ -]+)|([\w./ -]+?) tie embeddings", re.IGNORECASE)
_NOT_TIED = re.compile(r"untied|untie[-_]embeddings|tie_emb\w*=false", re.IGNORECASE)
_UNSUPPORTED_MODEL = re.compile(
    r"unet|sdxl|mamba|nemotron[_ -]?(v?[35]([_ -]|$)|h\b|nano|super|ultra)|hybrid|\bvit\b|whisper|\bt5\b", re.IGNORECASE
)
_PARENTHESES = re.compile(r"\s*\([^)]*\)")
_SIMILAR_MODEL = re.compile(r"\(([\w.-]+)-like\)")
_NAME_SUFFIX = re.compile(r"[-_ ]?(instruct|base|chat|hf|[0-9]+k(?=-instruct))$", re.IGNORECASE)
_SIZE_SUFFIX = re.compile(r"\s+([0-9.]+ ?b|moe|truncated .*)$", re.IGNORECASE)


def shape_of(row: Row) -> ModelShape:
    """The shape of the row's model.

    Raises:
        Skipped: the model is not a transformer that a shape can describe, or too little is known of it.
    """
    if _UNSUPPORTED_MODEL.search(row.model) or "hybrid_layer_pattern" in row.settings:
        raise Skipped(SkipReason.OTHER_MODEL)
    preset = _preset(row.model)
    if preset is None and (row.hidden is None or (row.layers is None and row.params_b is None)):
        raise Skipped(SkipReason.NO_SHAPE)
    try:
        shape = _with_row_changes(preset, row) if preset and _has_stated_widths(preset, row) else _from_row(row)
        return _half_layers(
            replace(shape, vocab_size=_padded_vocabulary(shape.vocab_size, row)), matched_value(HALF_LAYERS, row.row_id, "")
        )
    except StrategistError:
        raise Skipped(SkipReason.NO_SHAPE) from None


def _half_layers(shape: ModelShape, half: str) -> ModelShape:
    """The shape of layers with only one half (attention or feed-forward); the other half gets the smallest size that a shape
    allows.
    """
    if half == "attention":
        return replace(shape, ffn_size=1)
    return replace(shape, heads=1, kv_heads=1, head_size=1) if half == "ffn" else shape


@cache
def _preset(name: str) -> ModelShape | None:
    """The preset meant by names such as ``Llama 3(.1) 8B``, ``Qwen2.5-7B-Instruct``, ``phi-1.5 1.3 B`` or ``1B (X-like)``; None
    if there is none.
    """
    full_name = _PARENTHESES.sub("", name).strip()
    base_name = _NAME_SUFFIX.sub("", full_name)
    candidates = [full_name, base_name, _NAME_SUFFIX.sub("", base_name), _SIZE_SUFFIX.sub("", full_name)]
    if similar := _SIMILAR_MODEL.search(name):
        candidates.append(similar[1])
    return next((shape for item in candidates if item and (shape := find_preset(item))), None)


def _has_stated_widths(preset: ModelShape, row: Row) -> bool:
    """Whether a preset has the widths that the row states."""
    return row.hidden in (None, preset.hidden_size) and row.heads in (None, preset.heads)


def _with_row_changes(preset: ModelShape, row: Row) -> ModelShape:
    """A preset with the row's number of layers (if truncated), vocabulary and tied or untied embeddings."""
    tied = _states_tied(row)
    return replace(
        preset,
        name=row.model,
        layers=row.layers or preset.layers,
        vocab_size=row.vocab or _stated_vocabulary(row) or preset.vocab_size,
        tied_embeddings=preset.tied_embeddings if tied is None else tied,
    )


def _from_row(row: Row) -> ModelShape:
    hidden, settings = row.hidden or 0, row.settings
    matrices = 3 if _gated(row) else 2
    heads = row.heads or max(1, hidden // 128)
    ffn = row.ffn or _setting(settings, "ffn_hidden_size") or (4 * hidden if matrices == 2 else int(8 * hidden / 3 / 64) * 64)
    vocab = row.vocab or _setting(settings, "vocab_size") or _stated_vocabulary(row) or _default_vocabulary(row)
    layers = row.layers or _layers(row, hidden, matrices * ffn, vocab)
    tied = _states_tied(row)
    modern = settings.get("normalization", "RMSNorm" if matrices == 3 and not settings else "").lower() == "rmsnorm"
    rotary = settings.get("position_embedding_type", "rope" if modern else "learned") != "learned"
    biases = matrices == 2 and bool(BIASED_FAMILIES.search(row.model)) and "disable_bias_linear" not in settings
    latent = _latent_attention(settings)
    return ModelShape(
        name=row.model,
        layers=layers + _setting(settings, "mtp_num_layers"),
        hidden_size=hidden,
        heads=heads,
        kv_heads=row.kv_heads or heads,
        head_size=_head_size(settings, latent) or max(1, hidden // heads),
        ffn_size=ffn,
        vocab_size=vocab,
        ffn_matrices=matrices,
        tied_embeddings=matrices == 2 or bool(settings.get("num_layers")) if tied is None else tied,
        qkv_bias=biases,
        output_bias=biases,
        ffn_bias=biases,
        norm="rms" if modern else "layer",
        learned_positions=0 if rotary else row.seq_len or 0,
        moe=_experts(row, ffn, settings) if row.experts else None,
        mla=latent,
    )


def _gated(row: Row) -> bool:
    """Whether feed-forwards have three matrices: by settings or notes, otherwise by family, unless the width is that of two
    matrices.
    """
    if row.settings.get("num_layers"):
        return "swiglu" in row.settings
    llama = "llama" in row.model.lower()
    in_gated_family = GATED_FAMILIES.search(f"{row.model} {row.notes}" if "swiglu" in row.notes.lower() else row.model)
    return bool(in_gated_family) and (llama or row.ffn is None or row.ffn != 4 * (row.hidden or 0))


def _head_size(settings: dict[str, str], latent: MLAShape | None) -> int:
    """Head size as published; for latent attention, that of queries and keys. 0 if not published."""
    return latent.nope_head_size + latent.rope_head_size if latent else _setting(settings, "kv_channels")


def _latent_attention(settings: dict[str, str]) -> MLAShape | None:
    if "multi_latent_attention" not in settings:
        return None
    defaults = {"kv_lora_rank": 512, "qk_pos_emb_head_dim": 64, "qk_head_dim": 128, "v_head_dim": 128}
    key_value, rope, nope, value = (_setting(settings, name) or size for name, size in defaults.items())
    query = _setting(settings, "q_lora_rank")
    return MLAShape(query_rank=query, key_value_rank=key_value, rope_head_size=rope, nope_head_size=nope, value_head_size=value)


def _experts(row: Row, ffn: int, settings: dict[str, str]) -> MoEShape:
    """The experts; ``ffn`` is the width of one expert unless the row states another one."""
    width = _setting(settings, "moe_ffn_hidden_size") or max(1, int(last_number(EXPERT_WIDTH, row.notes) or ffn))
    shared = _setting(settings, "moe_shared_expert_intermediate_size") / width or last_number(SHARED_EXPERTS, row.notes) or 0
    dense = re.match(r"\(\[0\]\*([0-9]+)", settings.get("moe_layer_freq", ""))
    return MoEShape(
        experts=row.experts or 1,
        experts_per_token=row.topk or 1,
        expert_ffn_size=width,
        shared_experts=round(shared),
        first_dense_layers=int(dense[1]) if dense else int(last_number(FIRST_DENSE_LAYERS, row.notes) or 0),
        router_balance_bias="moe_router_enable_expert_bias" in settings,
    )


def _setting(settings: dict[str, str], name: str) -> int:
    """An integer setting; 0 if it is missing."""
    value = settings.get(name, "")
    return int(value) if value.isdecimal() else 0


def _stated_vocabulary(row: Row) -> int | None:
    """Vocabulary size that the notes state in thousands; None without one, or if the column has it."""
    thousands = last_number(VOCABULARY, row.notes)
    return int(thousands * 1000) if thousands and not row.vocab else None


def _default_vocabulary(row: Row) -> int:
    return BERT_VOCABULARY if "bert" in row.model.lower() else GPT2_VOCABULARY


def _padded_vocabulary(vocab: int, row: Row) -> int:
    if stack_name(row.text) not in PADDED_VOCABULARY_STACKS:
        return vocab
    multiple = (_setting(row.settings, "make_vocab_size_divisible_by") or VOCABULARY_MULTIPLE) * (row.tp or 1)
    return -(-vocab // multiple) * multiple


def _layers(row: Row, hidden: int, ffn_width: int, vocab: int) -> int:
    """Number of layers, computed from the number of parameters."""
    return max(1, round(((row.params_b or 0.0) * 1e9 - vocab * hidden) / (4 * hidden * hidden + hidden * ffn_width)))


def _states_tied(row: Row) -> bool | None:
    """Whether the row states that embedding and head are tied: ``untied``, or a list of model sizes with tied ones.

    None if it states neither; then GPT-2-like models tie them, as Megatron does, and Llama-like models do not.
    """
    if _NOT_TIED.search(row.text) or stack_name(row.text) in UNTIED_STACKS:
        return False
    if match := _TIED.search(row.notes):
        sizes = re.findall(r"[0-9.]+B", match[1] or match[2])
        return any(re.search(rf"(?<![0-9.]){re.escape(size)}", row.model, re.IGNORECASE) for size in sizes)
    return None
