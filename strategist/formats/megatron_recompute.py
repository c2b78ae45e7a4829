"""Recomputation that Megatron-LM's arguments describe (core_v0.19: megatron/training/arguments.py)."""

from collections.abc import Iterator
from typing import Any

from strategist.contract.diagnostic import Diagnostic
from strategist.contract.knobs import KnobValue
from strategist.formats.config_entries import Entries
from strategist.formats.finding_codes import finding
from strategist.formats.source import Source

OLD_RECOMPUTE = "checkpoint-activations"


def _granularity(entries: Entries) -> str | None:
    """Megatron-LM's granularity of recomputation, by any of its three flags."""
    kind = entries.choice({"full": "full", "selective": "selective"}, "recompute-granularity")
    if entries.enabled(OLD_RECOMPUTE):
        kind = "full"
    if entries.enabled("recompute-activations"):
        kind = "selective"
    return kind


def recomputes_attention(entries: Entries) -> bool:
    """Whether the core of attention is computed again, as selective recomputation does by default, with any kernel
    (core/transformer/attention.py: ``_checkpointed_attention_forward``).
    """
    return _granularity(entries) == "selective" and set(_words(entries.get("recompute-modules"))) <= {"core_attn"}


def recompute_settings(entries: Entries, stage: int) -> dict[str, KnobValue]:
    """Recomputation: of all layers, of every second layer, or of parts of each. ``stage``: layers of a pipeline stage."""
    kind = _granularity(entries)
    method = entries.choice({"uniform": "uniform", "block": "block"}, "recompute-method")
    number, modules = entries.integer("recompute-num-layers") or 1, entries.get("recompute-modules")
    if kind == "full":
        half = method == "block" and abs(2 * number - stage) < stage / 2
        return {"recompute": "every_second_layer" if half else "none" if method == "block" and 2 * number < stage else "full"}
    if kind == "selective" and set(_words(modules)) - {"core_attn"}:
        return {"recompute": "selective", "saved_operations": "matmul+attention+collectives"}
    return {"recompute": "none"}


def approximated_recomputation(entries: Entries, layers: int) -> dict[str, str]:
    """Flags with values that the setting expresses only approximately, with their effect."""
    found = {}
    if entries.get("recompute-method") == "uniform" and (entries.integer("recompute-num-layers") or 1) > 1:
        found["recompute-num-layers"] = "inputs of groups of layers are kept, not of each"
    if entries.get("recompute-method") == "block" and (entries.integer("recompute-num-layers") or 1) < layers:
        found["recompute-num-layers"] = "the first layers of a stage are computed again, the others kept"
    if set(_words(entries.get("recompute-modules"))) - {"core_attn", ""}:
        found["recompute-modules"] = "these modules are computed again; priced as all but matmuls, attention and collectives"
    return found


def refused_recomputation(entries: Entries, source: Source) -> Iterator[Diagnostic]:
    """Findings on flags that Megatron-LM no longer has, and on full recomputation that Megatron-Core stops at
    (core/transformer/transformer_config.py: ``__post_init__``).
    """
    if entries.enabled(OLD_RECOMPUTE):
        text = f"{OLD_RECOMPUTE} was removed; it is read as full recomputation"
        do = "write --recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
        yield finding("FMT-001", text, do, source, OLD_RECOMPUTE)
    missing = [name for name in ("recompute-method", "recompute-num-layers") if not entries.get(name)]
    if missing and _granularity(entries) == "full" and not entries.enabled(OLD_RECOMPUTE):
        assumed = "the method is read as uniform, the number as 1"
        text = f"recompute-granularity full without {' and '.join(missing)} is refused by Megatron-Core; {assumed}"
        yield finding("FMT-002", text, f"write --{' and --'.join(missing)}", source, "recompute-granularity", about=missing[-1])


def _words(value: Any) -> list[str]:
    """Words of a list, or of a text."""
    return [str(item).strip("[]'\",") for item in (value if isinstance(value, list) else str(value or "").split())]
