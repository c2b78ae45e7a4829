"""Options of ``accelerate launch`` are separated from the program's own arguments."""

import pytest

from strategist.formats.accelerate_launch import split
from strategist.formats.shell import Command, Word


def parts(text: str) -> tuple[str, str] | None:
    found = split(Command(words=tuple(Word(text=word, line=1) for word in text.split())))
    return None if found is None else (shown(found[0]), shown(found[1]))


def shown(command: Command) -> str:
    return " ".join(word.text for word in command.words)


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("accelerate launch --multi_gpu --num_processes 8 train.py --x 1", "train.py --x 1"),
        ("srun --nodes=2 accelerate launch --tee 3 src/train.py", "src/train.py"),
        ("python -m accelerate.commands.launch --cpu train.py", "train.py"),
        ("accelerate-launch --cpu train.py", "train.py"),
        ("accelerate launch --num_processes 8 -m trl.scripts.sft --x 1", "trl.scripts.sft --x 1"),
        ("accelerate launch --num_processes=8 $SCRIPT --x 1", "$SCRIPT --x 1"),
        ("accelerate launch $OPTIONS train.py --x 1", "train.py --x 1"),
        ("accelerate launch train.py recipes/a.yaml --x 1", "train.py --config recipes/a.yaml --x 1"),
        ("accelerate launch --multi_gpu", "accelerate launch --multi_gpu"),
        ("srun trl sft --bf16 --num_processes 8 --fsdp_config a.json --lr 1", "trl sft --bf16 --fsdp_config a.json --lr 1"),
        ("trl dpo --accelerate_config zero3", "trl dpo"),
    ],
)
def test_launcher_options_are_separated_from_the_program(text: str, program: str) -> None:
    found = parts(text)
    assert found is not None
    assert found[1] == program


@pytest.mark.parametrize(
    "text",
    ["torchrun --nproc-per-node 8 train.py", "accelerate config", "echo accelerate launch train.py", "trl env", "echo trl sft"],
)
def test_other_commands_are_not_split(text: str) -> None:
    assert parts(text) is None
