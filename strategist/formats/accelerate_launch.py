"""Splits a command that starts a program by accelerate into the launcher's options and the program's.

In ``accelerate launch`` the launcher's options precede the program; in TRL's command both kinds are mixed.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from strategist.formats.shell import SHOWS, Command, Word
from strategist.profiles import huggingface

_MENTIONED = re.compile(r"accelerate(\.commands\.launch|-launch|\s+launch)")
_MODULE = ("-m", "--module")
_TRL, _NO_TRAINING = "trl", ("env", "chat", "skills", "vllm-serve")
_PASSED = re.compile(
    r"--(?:accelerate_config|config_file|num_processes|num_machines|multi_gpu|mixed_precision|gpu_ids|machine_rank|main_process_\w+"
    r"|use_(?:deepspeed|fsdp|megatron_lm)|(?:fsdp|deepspeed|zero|zero3|offload|dynamo|parallelism_config)_(?!config\b)\w+)(?==|$)"
)
"""Options of the launcher that no script of TRL's has, which its command passes on (TRL 1.16.0, cli/commands/training.py)."""
_TRL_SCRIPT = re.compile(r"(?:.*/)?trl[./]scripts[./](\w+?)(?:\.py)?")
CONFIGS = (".yaml", ".yml", ".json")
"""Suffixes of trainers' config files."""


def default_file() -> Path:
    """The file that ``accelerate config`` writes by default, and that ``accelerate launch`` reads without ``--config_file``."""
    return huggingface.home() / "accelerate" / "default_config.yaml"


def mentions_accelerate(text: str) -> bool:
    """Whether a script may start its program with ``accelerate launch``."""
    return _MENTIONED.search(text) is not None


def split(command: Command) -> tuple[Command, Command] | None:
    """The launcher's options, and the program with its options; None for another command.

    A settings file that follows the program becomes its ``--config``, TRL's ``--accelerate_config`` becomes ``--config_file``. If
    no word can be identified as the program, both parts have all words.
    """
    words = tuple(_unquoted_words(command.words))
    texts = [word.text for word in words]
    if (program_index := next((index for index in range(len(texts)) if _starts_trl(texts[index : index + 2])), None)) is not None:
        return _split_trl(command, words[program_index:]) if texts[0] not in SHOWS else None
    start = next((index for index in range(len(texts)) if _starts_accelerate(texts[index : index + 2])), None)
    if start is None or texts[0] in SHOWS:
        return None
    words = words[start:]
    program_index = _program_index(texts[start:])
    if program_index is None:
        return replace(command, words=words), replace(command, words=words)
    program, following = words[program_index], words[program_index + 1 :]
    if following and following[0].text.endswith(CONFIGS):
        following = (replace(following[0], text="--config"), *following)
    return replace(command, words=words[:program_index]), replace(command, words=(program, *following))


def trl_trainer(command: Command) -> str:
    """The trainer of a command of TRL, such as ``sft`` (``trl sft``, ``python -m trl.scripts.sft``); empty for another command."""
    texts = [word.text for word in command.words]
    if not texts or texts[0] in SHOWS:
        return ""
    if (start := next((index for index in range(len(texts)) if _starts_trl(texts[index : index + 2])), None)) is not None:
        return texts[start + 1]
    return next((found[1] for text in texts if (found := _TRL_SCRIPT.fullmatch(text))), "")


def _starts_trl(texts: Sequence[str]) -> bool:
    return PurePosixPath(texts[0]).name == _TRL and len(texts) > 1 and texts[1].isidentifier() and texts[1] not in _NO_TRAINING


def _split_trl(command: Command, words: Sequence[Word]) -> tuple[Command, Command]:
    parts: tuple[list[Word], list[Word]] = ([], list(words[:2]))
    is_launcher_option = False
    for word in words[2:]:
        if word.text.startswith("-"):
            is_launcher_option = _PASSED.match(word.text) is not None
        parts[0 if is_launcher_option else 1].append(
            replace(word, text=word.text.replace("--accelerate_config", "--config_file", 1))
        )
    return replace(command, words=tuple(parts[0])), replace(command, words=tuple(parts[1]))


def _unquoted_words(words: Sequence[Word]) -> Iterator[Word]:
    """The words; a quoted ``accelerate launch`` command is split into its own words."""
    for word in words:
        inner = word.text.split() if mentions_accelerate(word.text) else [word.text]
        yield from (replace(word, text=text) for text in inner)


def _starts_accelerate(texts: Sequence[str]) -> bool:
    name = PurePosixPath(texts[0]).name
    return name in ("accelerate-launch", "accelerate.commands.launch") or (name == "accelerate" and texts[1:] == ["launch"])


def _program_index(texts: Sequence[str]) -> int | None:
    """Index of the program: a Python file, a module, or the first word that is not an option or option's value; None without
    one.
    """
    numbered = list(enumerate(texts))[2:] if texts[0].endswith("accelerate") else list(enumerate(texts))[1:]
    named = (at for at, text in numbered if text.endswith(".py") or texts[at - 1] in _MODULE)
    plain = (at for at, text in numbered if not text.startswith("-") and (texts[at - 1][:1] != "-" or "=" in texts[at - 1]))
    return next(named, next(plain, None))
