"""Model shape that Megatron-LM's arguments describe.

Defaults: megatron/training/arguments.py and megatron/core/transformer/transformer_config.py, core_v0.19: feed-forward size of 4
hidden sizes (if gated, 2/3 of that, rounded down to a multiple of 64), biases unless they are disabled, learned positions, tied
embeddings.
"""

import re
from dataclasses import replace

from strategist.contract.model import MLAShape, ModelShape, MoEShape
from strategist.errors import InputError
from strategist.formats.config_entries import Entries
from strategist.formats.preset_match import related_presets
from strategist.formats.source import Source
from strategist.profiles.models import find_preset

NEEDED = ("num-layers", "hidden-size", "num-attention-heads")
"""Flags without which a script states no model shape: it comes from a checkpoint, or from layers of other kinds."""

_PATTERN = re.compile(r"[\[\]()0-9+*, ]+")
_LIST_TERM = re.compile(r"\[([0-9, ]+)\](?:\*([0-9]+))?")
OTHER_LAYERS = ("hybrid-layer-pattern", "hybrid-override-pattern", "heterogeneous-layers-config-path")


def shape(entries: Entries, source: Source, tp: int) -> tuple[ModelShape | None, str]:
    """The shape, or None if the arguments state none; and the missing flag of its vocabulary, empty if none is missing.

    Raises:
        FileError: a value is invalid, or the values fit no model.
    """
    layers, hidden, heads = (entries.integer(name) for name in NEEDED)
    if not (layers and hidden and heads) or any(entries.get(name) for name in OTHER_LAYERS):
        return None, ""
    gated, biases = entries.enabled("swiglu", "quick-geglu"), not entries.enabled("disable-bias-linear")
    grouped, latent = entries.enabled("group-query-attention"), _latent_attention(entries)
    usual = hidden * 4 * 2 // 3 // 64 * 64 if gated else 4 * hidden
    head_size = latent.nope_head_size + latent.rope_head_size if latent else entries.integer("kv-channels") or hidden // heads
    positions = entries.get("position-embedding-type") or "learned_absolute"
    ffn_size = entries.integer("ffn-hidden-size") or usual
    try:
        found = ModelShape(
            name=f"{layers} layers of {hidden}", layers=layers, hidden_size=hidden, heads=heads,
            kv_heads=(entries.integer("num-query-groups") or 1) if grouped else heads,
            head_size=head_size, ffn_size=ffn_size, vocab_size=1, ffn_matrices=3 if gated else 2,
            tied_embeddings=not entries.enabled("untie-embeddings-and-output-weights"),
            qkv_bias=biases or entries.enabled("add-qkv-bias"), output_bias=biases, ffn_bias=biases,
            qk_norm=entries.enabled("qk-layernorm") and latent is None,
            attention_sinks=entries.get("softmax-type") == "learnable",
            norm="rms" if entries.get("normalization") == "RMSNorm" else "layer",
            learned_positions=(entries.integer("max-position-embeddings") or 0) if positions == "learned_absolute" else 0,
            rope_theta=entries.number("rotary-base") or ModelShape.rope_theta, norm_epsilon=entries.number("norm-epsilon") or 1e-5,
            activation_limit=entries.number("activation-func-clamp-value") or 0.0,
            activation="relu2" if entries.enabled("squared-relu") else "", mla=latent,
            moe=_experts(entries, source, layers, ffn_size),
        )  # fmt: skip
    except InputError as error:
        raise source.error(next(name for name in NEEDED if source.has(name)), str(error)) from None
    return _with_vocabulary(found, entries, tp)


def _latent_attention(entries: Entries) -> MLAShape | None:
    """Multi-head latent attention, with the defaults of ``_add_mla_args``; None without it."""
    if not entries.enabled("multi-latent-attention"):
        return None
    return MLAShape(
        query_rank=entries.integer("q-lora-rank", minimum=0) or 0,
        key_value_rank=entries.integer("kv-lora-rank") or 32,
        rope_head_size=entries.integer("qk-pos-emb-head-dim") or 64,
        nope_head_size=entries.integer("qk-head-dim") or 128,
        value_head_size=entries.integer("v-head-dim") or 128,
    )


def _experts(entries: Entries, source: Source, layers: int, ffn_size: int) -> MoEShape | None:
    experts = entries.integer("num-experts")
    if not experts:
        return None
    width = entries.integer("moe-ffn-hidden-size") or ffn_size
    score = entries.choice({"softmax": "softmax", "sigmoid": "sigmoid", "sqrtsoftplus": "sigmoid"}, "moe-router-score-function")
    return MoEShape(
        experts=experts,
        experts_per_token=entries.integer("moe-router-topk") or 2,
        expert_ffn_size=width,
        shared_experts=-(-(entries.integer("moe-shared-expert-intermediate-size", minimum=0) or 0) // width),
        first_dense_layers=_dense_layers(entries, source, layers),
        router_balance_bias=entries.enabled("moe-router-enable-expert-bias"),
        router_score=score or "softmax",
        router_normalised=score == "sigmoid" or not entries.enabled("moe-router-pre-softmax"),
        router_groups=entries.integer("moe-router-num-groups") or 1,
        router_groups_per_token=entries.integer("moe-router-group-topk") or 1,
        routed_scale=entries.number("moe-router-topk-scaling-factor") or 1.0,
        balance_coefficient=entries.number("moe-aux-loss-coeff") or 0.0,
    )


def _dense_layers(entries: Entries, source: Source, layers: int) -> int:
    """Number of layers without experts, wherever they are; a pattern is a sum of lists, such as ``([0]*3+[1]*58)``."""
    pattern = str(entries.get("moe-layer-freq") or 1)
    if pattern.isdigit():
        return layers - -(-layers // int(pattern))
    lists = _LIST_TERM.findall(pattern) if _PATTERN.fullmatch(pattern) and len(pattern) < 10_000 else []
    marks = [(mark, int(times or 1)) for marks_text, times in lists for mark in marks_text.replace(" ", "").split(",")]
    if sum(times for _, times in marks) != layers:
        raise source.error(
            "moe-layer-freq", f"moe-layer-freq is {pattern}: a number, or a sum of lists for the {layers} layers is needed"
        )
    return sum(times for mark, times in marks if mark == "0")


def _with_vocabulary(found: ModelShape, entries: Entries, tp: int) -> tuple[ModelShape, str]:
    """The shape with its vocabulary, and the flag that is missing for it (empty if none).

    A vocabulary that is not stated is that of a preset with the same price, of the tokenizer's preset, or of GPT-2. The name is
    that of a preset with the same price, if there is one. A vocabulary that ``tp`` does not divide is padded, as in Megatron-LM
    (``vocab_size_with_padding``).
    """
    unit = (entries.integer("make-vocab-size-divisible-by") or 128) * tp
    vocab_size, missing = entries.integer("vocab-size", "padded-vocab-size"), ""
    same_price = related_presets(replace(found, vocab_size=vocab_size or 1), vocabulary=vocab_size is not None)
    if vocab_size is None:
        tokenizer = find_preset(str(entries.get("tokenizer-model") or ""))
        known = same_price[0] if same_price else tokenizer or find_preset("gpt2-small")
        assert known is not None
        vocab_size, missing = known.vocab_size, "" if same_price or tokenizer else "vocab-size"
    name = same_price[0].name if same_price else found.name
    padded = vocab_size if vocab_size % tp == 0 else -(-vocab_size // unit) * unit
    return replace(found, name=name, vocab_size=padded), missing
