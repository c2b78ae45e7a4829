"""Systems whose configurations are recognised and not read: their names, and what can be read instead."""

import re

from strategist.errors import FileError
from strategist.formats.source import Source

_AS_MEGATRON = "write its settings as flags of Megatron-LM's pretrain_gpt.py"
_AS_DEEPSPEED = "check the DeepSpeed configuration of its ZeRO stage, with --train, --seq-len and --fix micro_batch=N"
COMMANDS = (
    (r"swift[ \t]+rlhf", "ms-swift", "its losses of preferences and rewards have no price"),
    (r"megatron[ \t]+(?:sft|pt|rlhf)", "Megatron-SWIFT", f"{_AS_MEGATRON}, which have the same names with -"),
    (r"tune[ \t]+run", "torchtune", "check the YAML file that its --config names; tune cp copies a shipped one"),
    (r"openrlhf\.cli\.\w+", "OpenRLHF", _AS_DEEPSPEED),
    (r"verl\.trainer\.\w+", "verl", "give --model and its settings to strategist plan"),
    (r"nemo[ \t]+llm|\S*megatron_gpt_(?:pretraining|finetuning)\.py", "NVIDIA NeMo", _AS_MEGATRON),
)
"""Starts of trainings: a pattern of the command, the system, and what can be read instead."""

DEGREES = ("tensor_model_parallel_size", "pipeline_model_parallel_size")
SECTIONS = ("model", "model.model_config", "strategy", "trainer.strategy")
"""Sections of NeMo's and Megatron-Bridge's YAML that hold degrees."""


def unreadable(source: Source) -> None:
    """Refuses a source of a system whose files are not read.

    Raises:
        FileError: it is such a source; with the system's name and what can be read instead.
    """
    if source.language == "command":
        for pattern, system, instead in COMMANDS:
            if found := re.search(rf"^[^#\n]*?(?<![\w-])({pattern})(?![\w-])", source.text, re.MULTILINE):
                raise FileError(source.path, f"is a command of {system}, which is not read ({found[1]}); {instead}")
    if source.language == "yaml" and source.has("pipe_parallel_size"):
        raise FileError(source.path, f"is a configuration of GPT-NeoX, which is not read; {_AS_MEGATRON}")
    if source.language == "yaml" and any(source.has(f"{section}.{name}") for section in SECTIONS for name in DEGREES):
        law = "is a configuration of NVIDIA NeMo or Megatron-Bridge, which is not read"
        raise FileError(source.path, f"{law}; {_AS_MEGATRON}")
