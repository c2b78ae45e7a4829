"""Arguments that training scripts have beside TrainingArguments: sequence length, adapters, and the type of a frozen base.

No two scripts share a parser, but most use the same few names: those of TRL, of the examples of PEFT and QLoRA, and of FastChat,
LLaVA, Qwen, Firefly, MiniCPM and Chinese-LLaMA-Alpaca. Other names of adapters or quantization are reported.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from strategist.contract.diagnostic import Diagnostic
from strategist.formats.config_entries import OFF, Entries
from strategist.formats.finding_codes import finding
from strategist.frozen import frozen

SEQUENCE = (
    "max_length", "max_seq_length", "max_seq_len", "block_size", "model_max_length", "cutoff_len", "max_sequence_length",
    "seq_length", "sequence_length",
)  # fmt: skip
MODES, RANKS = ("finetuning_type", "train_mode", "train_type", "tuner_type", "sft_type"), ("lora_r", "lora_rank", "lora_dim")
SWITCHES = ("use_peft", "use_lora", "lora_enable", "use_peft_lora", "low_rank_training")
FOUR_BITS = ("load_in_4bit", "use_4bit_quantization", "q_lora", "use_qlora")
BITS = ("bits", "quantization_bit", "load_in_kbits", "load_in_bits")
WEIGHT_TYPES = ("torch_dtype", "dtype", "model_dtype")
"""Arguments for the type in which weights are loaded: TRL's, those of transformers' examples, and others'."""

WHOLE = ("lora_modules_to_save", "modules_to_save")
KINDS = {name: name for name in ("full", "lora", "qlora")}
TRL = ("use_peft", "lora_r", "load_in_4bit")
"""Names of TRL, whose bases lie in the compute type unless they state otherwise."""

HINTS = ("*lora*", "*peft*", "*adapter*", "*quant*", "*4bit*", "*freeze*")
"""Patterns of names that may freeze or quantize parameters."""

DEFAULT_RANK = 16


@frozen
class TrainingMode:
    """Training mode of a script. ``kind``: empty if no argument sets it. ``entry``: the argument that sets it."""

    kind: str = ""
    rank: int = DEFAULT_RANK
    entry: str = ""
    base_bits_stated: bool = True


def training_mode(entries: Entries) -> TrainingMode:
    """Training mode that a script's arguments set."""
    mode = KINDS.get(str(entries.get(*MODES) or "").lower(), "")
    switch, rank = entries.flag(*SWITCHES), entries.integer(*RANKS, minimum=0)
    four_bit_flags = [entries.flag(name) for name in FOUR_BITS if entries.has(name)]
    bits = entries.integer(*BITS, minimum=0)
    if not mode:
        adapts = switch if switch is not None else bool(rank)
        stated = switch is not None or bool(rank)
        mode = "lora" if adapts else "full" if stated else ""
    four = any(four_bit_flags) or bits == 4
    kind = "qlora" if mode == "lora" and four else mode
    names = (*MODES, *SWITCHES, *RANKS)
    entry = next((name for name in names if entries.has(name)), "") if kind else ""
    base_bits_stated = kind != "lora" or bool(four_bit_flags) or bits is not None or any(entries.has(name) for name in TRL)
    return TrainingMode(kind=kind, rank=rank or DEFAULT_RANK, entry=entry, base_bits_stated=base_bits_stated)


def training_findings(entries: Entries, mode: TrainingMode) -> Iterator[Diagnostic]:
    """Findings on adapters: a base whose type the script decides, and arguments that may freeze or quantize parameters."""
    source, do = entries.source, "give --train full, lora or qlora"
    if (length := next((name for name in SEQUENCE if entries.has(name)), "")) and not entries.enabled("packing"):
        text = f"{length}: sequences are not packed; each is priced at this maximum length"
        yield finding("FMT-003", text, "give --seq-len", source, length)
    if not mode.base_bits_stated:
        text = f"{mode.entry}: no argument states the bits of the base weights; 16 are assumed"
        yield finding("FMT-011", text, "give --train lora or qlora", source, mode.entry)
    if mode.kind != "full" and (module_argument := next((name for name in WHOLE if entries.enabled(name)), "")):
        text = f"{module_argument}: these modules are fully trained; the price leaves them out"
        yield finding("FMT-002", text, "measure it if it matters", source, module_argument, about=WHOLE[0])
    if not mode.kind:
        for entry in [entry for entry in entries.unread() if any(fnmatchcase(entry.name, hint) for hint in HINTS)]:
            if entries.get(entry.name) in (*OFF, "False", "false"):
                continue
            text = f"{entry.name} is an argument of the script and may freeze or quantize parameters; full training is assumed"
            yield finding("FMT-011", text, do, source, entry.name)
