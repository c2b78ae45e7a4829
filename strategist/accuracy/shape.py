"""The model of a published row: a preset of that name, with what the row itself says; or the row's own figures."""

import re
from dataclasses import replace
from functools import cache

from strategist.accuracy.row import Row
from strategist.accuracy.skip import Skip, Skipped
from strategist.contract.model import ModelShape, MoEShape
from strategist.errors import StrategistError
from strategist.profiles.models import resolve_model

GATED = re.compile(
    r"llama|qwen|mistral|mixtral|zephyr|deepseek|gemma|\byi\b|yi-|baichuan|internlm|chatglm|gpt-oss|moonlight|kimi|swiglu|openbuddy|skywork|"
    r"phi-3|xverse|mcore_te_tp1_pp1_te_4experts",
    re.IGNORECASE,
)
"""Families whose feed-forwards are gated (three matrices); GPT, BERT, MPT, OPT, Falcon and their kin have two."""

_TIED = re.compile(r"tied? embeddings? for ([\w./ -]+)|([\w./ -]+?) tie embeddings", re.IGNORECASE)
_NOT_TIED = re.compile(r"untied|untie[-_]embeddings", re.IGNORECASE)
_OTHER = re.compile(r"unet|sdxl|mamba|nemotron[_ -]?(3|v3|nano|super)|hybrid|vit\b|whisper", re.IGNORECASE)
_SIZE = re.compile(r"\s*\([^)]*\)|\(|\)")


def shape_of(row: Row) -> ModelShape:
    """The shape of the row's model.

    Raises:
        Skipped: it is no transformer that a shape describes, or too little is known of it.
    """
    if _OTHER.search(row.model):
        raise Skipped(Skip.OTHER_MODEL)
    known = _preset(_SIZE.sub("", row.model).strip())
    if known is None and (row.hidden is None or (row.layers is None and row.params_b is None)):
        raise Skipped(Skip.NO_SHAPE)
    try:
        return _own(row) if known is None else _adapted(known, row)
    except StrategistError:
        raise Skipped(Skip.NO_SHAPE) from None


@cache
def _preset(name: str) -> ModelShape | None:
    """The preset of that name, tried as people write it: ``Llama 3.1 8B``, ``Qwen2.5-7B-Instruct``."""
    if "/" in name or "." in name.rpartition(" ")[2][-5:].replace("B", "").strip("0123456789.") or not name:
        return None
    for spelled in (name, re.sub(r"[-_ ]?(instruct|base|chat|hf)$", "", name, flags=re.IGNORECASE)):
        try:
            return resolve_model(spelled.replace(" ", "-")).shape
        except StrategistError:
            continue
    return None


def _adapted(known: ModelShape, row: Row) -> ModelShape:
    """A preset with the row's layers, where it was cut short, and vocabulary."""
    if row.hidden not in (None, known.hidden_size):
        return _own(row)
    return replace(known, name=row.model, layers=row.layers or known.layers, vocab_size=row.vocab or known.vocab_size)


def _own(row: Row) -> ModelShape:
    hidden = row.hidden or 0
    gated = bool(GATED.search(row.text if row.ffn is None else f"{row.model} {row.notes}" if "swiglu" in row.notes else row.model))
    matrices = 3 if gated and (row.ffn is None or row.ffn != 4 * hidden or "llama" in row.model.lower()) else 2
    heads = row.heads or max(1, hidden // 128)
    ffn = row.ffn or (4 * hidden if matrices == 2 else int(8 * hidden / 3 / 64) * 64)
    experts = None
    if row.experts:
        experts = MoEShape(experts=row.experts, experts_per_token=row.topk or 1, expert_ffn_size=ffn)
    vocab = row.vocab or 50304
    layers = row.layers or _layers(row, hidden, matrices * ffn, vocab)
    return ModelShape(
        name=row.model,
        layers=layers,
        hidden_size=hidden,
        heads=heads,
        kv_heads=row.kv_heads or heads,
        head_size=max(1, hidden // heads),
        ffn_size=ffn,
        vocab_size=vocab,
        ffn_matrices=matrices,
        tied_embeddings=_tied(row, gated=matrices == 3),
        norm="rms" if matrices == 3 else "layer",
        learned_positions=0 if matrices == 3 else row.seq_len or 0,
        moe=experts,
    )


def _layers(row: Row, hidden: int, ffn_width: int, vocab: int) -> int:
    """Layers from the parameters, where only those are stated."""
    return max(1, round(((row.params_b or 0.0) * 1e9 - vocab * hidden) / (4 * hidden * hidden + hidden * ffn_width)))


def _tied(row: Row, *, gated: bool) -> bool:
    """Whether embedding and head are one matrix: as the row says, else as GPT-2's kin do and Llama's don't."""
    if _NOT_TIED.search(row.text):
        return False
    if match := _TIED.search(row.notes):
        sizes = re.findall(r"[0-9.]+B", match[1] or match[2])
        return any(re.search(rf"(?<![0-9.]){re.escape(size)}", row.model, re.IGNORECASE) for size in sizes)
    return not gated
