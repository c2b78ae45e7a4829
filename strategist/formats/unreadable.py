"""Systems whose configurations are recognised and not read, and programs that do not train or whose training has no price."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from strategist.errors import FileError
from strategist.formats import shell
from strategist.formats.config_entries import Entries
from strategist.formats.source import Source

_AS_MEGATRON = "write its settings as flags of Megatron-LM's pretrain_gpt.py"
_AS_DEEPSPEED = "check the DeepSpeed configuration of its ZeRO stage, with --train, --seq-len and --fix micro_batch=N"
_AS_PLAN = "give its model and settings to strategist plan: --model, --gpus, --seq-len, --train, --fix micro_batch=N"
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
    (r"verl\.trainer\.main", "EasyR1", _REINFORCEMENT),
    (r"actor_rollout_ref\.[\w.]+", "verl", _REINFORCEMENT),
    (r"openrlhf\.cli\.\w+", "OpenRLHF", _AS_DEEPSPEED),
    (r"verl\.trainer\.\w+", "verl", _AS_PLAN),
    (r"nemo[ \t]+llm|\S*megatron_gpt_(?:pretraining|finetuning)\.py", "NVIDIA NeMo", _AS_MEGATRON),
)
"""Starts of trainings: a pattern of the command, the system, and what can be read instead."""

PROGRAMS = (
    (r"\w*(?:ppo|grpo|dapo|rloo|gspo)\w*|train_rl|raft(?:_\w+)?", _REINFORCEMENT),
    (r"\w*text_generation\w*|generate_\w+|(?:\w+_)?inference(?:_\w+)?", _GENERATION),
    (r"convert(?:_\w+)?|\w+_convert(?:_\w+|er)?|hf2\w+|\w+2hf\w*|report_theoretical_memory",
     "it converts or inspects weights and trains nothing; check a training"),
    (r"(?:run_)?eval(?:uate)?(?:_\w+)?", "it evaluates a model and trains nothing; check a training"),
)  # fmt: skip
"""Programs in Python, by a pattern of their names without suffix, and what is said of them instead of a verdict."""

NEMO = "NVIDIA NeMo or Megatron-Bridge"
DEGREES = ("tensor_model_parallel_size", "pipeline_model_parallel_size")
SECTIONS = ("model", "model.model_config", "strategy", "trainer.strategy")
"""Sections of NeMo's and Megatron-Bridge's YAML that hold degrees."""

CONFIGURATIONS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("apiVersion", "kind"), "Kubernetes", "check the configuration or the start script that it holds"),
    (("nbformat", "cells"), "Jupyter", _AS_PLAN),
    (("actor_rollout_ref",), "verl", _REINFORCEMENT),
    (("worker.actor", "algorithm.adv_estimator"), "EasyR1", _REINFORCEMENT),
    (("run.model_type", "training_config.training_args"), "SageMaker HyperPod", _AS_PLAN),
    (("distributed.pp_engine", "training.micro_batch_size"), "picotron", _AS_PLAN),
    (("train_cfgs.per_device_train_batch_size", "model_cfgs"), "align-anything", _AS_PLAN),
    (("model.partial_pretrain", "data.train_batch_size"), "verl", _AS_PLAN),
    (("orchestrator",), "prime-rl", _REINFORCEMENT),
    (("deployment", "data.seq_len"), "prime-rl", _AS_PLAN),
    (("grpo", "policy"), "NeMo-RL", _REINFORCEMENT),
    (("policy.train_global_batch_size",), "NeMo-RL", _AS_PLAN),
    (("step_scheduler.local_batch_size",), "NeMo AutoModel", _AS_PLAN),
    (("pipe_parallel_size",), "GPT-NeoX", _AS_MEGATRON),
    (("pipe-parallel-size",), "GPT-NeoX", _AS_MEGATRON),
    *(((f"{section}.{name}",), NEMO, _AS_MEGATRON) for section in SECTIONS for name in DEGREES),
    (("recipe._target_", "train.micro_batch_size"), NEMO, _AS_MEGATRON),
    (("data.train_path", "train.micro_batch_size"), "VeOmni", _AS_PLAN),
    (("train.micro_batch_size", "train.global_batch_size", "eval"), "LitGPT", _AS_PLAN),
    (("train_loader", "max_seq_len"), "LLM Foundry", _AS_PLAN),
    (("train_loader", "variables.max_seq_len"), "LLM Foundry", _AS_PLAN),
    (("device_train_microbatch_size", "model.d_model"), "OLMo", _AS_PLAN),
    (("model.model_name", "training.per_device_train_batch_size"), "Oumi", _AS_PLAN),
    (("model.model_name", "training.trainer_type"), "Oumi", _AS_PLAN),
    (("per_device_batch_size", "max_target_length"), "MaxText", _AS_PLAN),
    (("model_id_or_path", "seq_len", "batch_size"), "mistral-finetune", _AS_PLAN),
    (("teacher", "training_args.per_device_train_batch_size"), "DistillKit", _AS_PLAN),
    (("trainer.strategy.class_path",), "LightningCLI", "write its strategy and its Trainer as Python, and check that"),
)  # fmt: skip
"""Configurations by names that they hold together: the system, and what can be done instead. The first match counts."""

SCRIPTS = (
    (r"\bFast(?:Language|Vision)?Model\.from_pretrained\(", "Unsloth", _AS_PLAN),
    (r"\b(?:TrainingArguments|Seq2SeqTrainingArguments|SFTConfig)\(", "transformers' Trainer in Python",
     "write its arguments as YAML, and check that with --format hf-trainer"),
    (r"\bFabric\(", "Lightning Fabric", _AS_PLAN),
    (r"\b(?:from|import) (?:nemo\.collections|megatron\.bridge)\b", NEMO, _AS_MEGATRON),
    (r"\bfrom torchtune\b", "torchtune in Python", "check the YAML file of its recipe"),
    (r"\b(?:FullyShardedDataParallel|fully_shard|DistributedDataParallel)\b", "torch's own FSDP or DDP", _AS_PLAN),
    (r"\bdeepspeed\.initialize\(", "DeepSpeed in Python", _AS_DEEPSPEED),
)  # fmt: skip
"""Programs in Python by a pattern of their text: the system, and what can be done instead."""


def unreadable(source: Source) -> None:
    """Refuses a source of a system whose files are not read.

    Raises:
        FileError: it is such a source, or its arguments only predict; with the system's name and what can be read instead.
    """
    if source.language == "command":
        for pattern, system, instead in COMMANDS:
            if found := re.search(rf"^[^#\n]*?(?<![\w-])({pattern})(?![\w-])", source.text, re.MULTILINE):
                raise FileError(source.path, f"is a command of {system}, which is not read ({found[1]}); {instead}")
        _check_programs(source)
    if source.language in ("yaml", "json", "toml"):
        for names, system, instead in CONFIGURATIONS:
            if source.has(*names):
                raise FileError(source.path, f"is a configuration of {system}, which is not read; {instead}")
    entries = Entries(source)
    if entries.flag("do_predict") and not entries.flag("do_train"):
        raise source.error("do_predict", f"do_predict without do_train: {_GENERATION}")


def unread_script(source: Source) -> FileError | None:
    """The error of a program in Python that no format matches, if its system is known."""
    for pattern, system, instead in SCRIPTS:
        if source.language == "python" and re.search(pattern, source.text):
            return FileError(source.path, f"is a training script of {system}, which is not read; {instead}")
    return None


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
