"""Systems whose configurations are recognised and not read, and programs that do not train or whose training has no price."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from strategist.errors import FileError
from strategist.formats import shell
from strategist.formats.source import Source

_AS_MEGATRON = "write its settings as flags of Megatron-LM's pretrain_gpt.py"
_AS_DEEPSPEED = "check the DeepSpeed configuration of its ZeRO stage, with --train, --seq-len and --fix micro_batch=N"
_REINFORCEMENT = (
    "reinforcement learning has no price: it also generates answers and scores them; check a supervised training instead"
)
_GENERATION = "it generates text and trains nothing; check a training"
COMMANDS = (
    (r"swift[ \t]+rlhf", "ms-swift", "its losses of preferences and rewards have no price"),
    (r"megatron[ \t]+(?:sft|pt|rlhf)", "Megatron-SWIFT", f"{_AS_MEGATRON}, which have the same names with -"),
    (r"tune[ \t]+run", "torchtune", "check the YAML file that its --config names; tune cp copies a shipped one"),
    (r"openrlhf\.cli\.train_ppo\w*", "OpenRLHF", _REINFORCEMENT),
    (r"openrlhf\.cli\.(?:serve|batch_inference|interactive)\w*", "OpenRLHF", _GENERATION),
    (r"(?:verl|recipe)\.[\w.]*(?:ppo|grpo|dapo|async_main)\w*", "verl", _REINFORCEMENT),
    (r"verl\.trainer\.main_generation\w*", "verl", _GENERATION),
    (r"openrlhf\.cli\.\w+", "OpenRLHF", _AS_DEEPSPEED),
    (r"verl\.trainer\.\w+", "verl", "give --model and its settings to strategist plan"),
    (r"nemo[ \t]+llm|\S*megatron_gpt_(?:pretraining|finetuning)\.py", "NVIDIA NeMo", _AS_MEGATRON),
)
"""Starts of trainings: a pattern of the command, the system, and what can be read instead."""

PROGRAMS = (
    (r"\w*(?:ppo|grpo|dapo|rloo|gspo)\w*|train_rl", _REINFORCEMENT),
    (r"\w*text_generation\w*|generate_\w+|(?:\w+_)?inference(?:_\w+)?", _GENERATION),
    (r"convert(?:_\w+)?|\w+_convert(?:_\w+|er)?|hf2\w+|\w+2hf\w*|report_theoretical_memory",
     "it converts or inspects weights and trains nothing; check a training"),
    (r"(?:run_)?eval(?:uate)?(?:_\w+)?", "it evaluates a model and trains nothing; check a training"),
)  # fmt: skip
"""Programs in Python, by a pattern of their names without suffix, and what is said of them instead of a verdict."""

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
        _check_programs(source)
    if source.language == "yaml" and source.has("actor_rollout_ref"):
        raise FileError(source.path, f"is a configuration of verl, which is not read; {_REINFORCEMENT}")
    if source.language == "yaml" and source.has("pipe_parallel_size"):
        raise FileError(source.path, f"is a configuration of GPT-NeoX, which is not read; {_AS_MEGATRON}")
    if source.language == "yaml" and any(source.has(f"{section}.{name}") for section in SECTIONS for name in DEGREES):
        law = "is a configuration of NVIDIA NeMo or Megatron-Bridge, which is not read"
        raise FileError(source.path, f"{law}; {_AS_MEGATRON}")


def _check_programs(source: Source) -> None:
    """Refuses a script all of whose programs do not train, or train in a way without a price."""
    programs = list(dict.fromkeys(_started_programs(source.text)))
    reasons = [
        next((reason for pattern, reason in PROGRAMS if re.fullmatch(pattern, PurePosixPath(program).stem)), "")
        for program in programs
    ]
    if programs and all(reasons):
        raise FileError(source.path, f"starts {programs[-1]}: {reasons[-1]}")


def _started_programs(text: str) -> Iterator[str]:
    """The Python program of each command with options; of a launcher in Python, the program that it starts."""
    for command in shell.commands(text):
        words = [word.text for word in command.words]
        if not command.runs or words[0] in shell.UTILITIES or not any(word.startswith("--") for word in words):
            continue
        programs = [index for index, word in enumerate(words) if word.endswith(".py")]
        positional = [index for index in programs if (index and not words[index - 1].startswith("--")) or words[index - 1] == "--"]
        if programs:
            yield words[positional[-1] if positional else programs[0]]
