"""Files of other frameworks become flat entries with positions."""

from pathlib import Path

import pytest

from strategist.errors import FileError
from strategist.formats.source import load, parse

MAYBE = "${{condition:+{}}}"
"""A value that a condition decides."""


def values(text: str, path: str = "<text>") -> dict[str, object]:
    return {name: entry.value for name, entry in parse(text, path).entries.items()}


def test_nested_names_are_dotted_and_have_a_line() -> None:
    for text, path in (
        ('{\n\t"zero": {\n\t\t"stage": 3\n\t},\n\t"on": true\n}', "a.json"),
        ("\nzero:\n  stage: 3\n'on': true\n", "a.yaml"),
        ("on = true\n[zero]\nstage = 3\n", "a.toml"),
    ):
        source = parse(text, path)
        assert {name: entry.value for name, entry in source.entries.items()} == {"zero.stage": 3, "on": True}
        assert source.entries["zero.stage"].line == 3


def test_without_a_suffix_the_language_is_detected_from_the_content() -> None:
    assert parse('  {"a": 1}').language == "json"
    assert parse("a: 1\n").language == "yaml"
    assert parse("[a]\nb = 1\n").language == "toml"
    assert parse("torchrun train.py --a.b 1").language == "command"
    assert parse("import torch\n\nx = 1\n").language == "python"


def test_flags_of_a_script_are_entries_with_variables_resolved() -> None:
    script = """#!/bin/bash
TP=4
export PP="2"   # two stages
MODEL_ARGS=(
  --num-layers 32      # the layers
  --hidden-size=4096 \\
  --tensor-model-parallel-size $TP
  --pipeline-model-parallel-size ${PP}
  --seed ${SEED:-17}
  --swiglu
  --data-path one two
)
torchrun --nproc_per_node 8 train.py ${MODEL_ARGS[@]} --lr $LR --swiglu
"""
    found = values(script)
    assert found == {
        "num-layers": "32", "hidden-size": "4096", "tensor-model-parallel-size": "4", "pipeline-model-parallel-size": "2",
        "seed": "17", "swiglu": True, "data-path": "one two", "nproc_per_node": "8", "lr": "$LR",
    }  # fmt: skip
    assert parse(script).entries["tensor-model-parallel-size"].line == 7


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("TP=8; PP=4\nrun --tp $TP --pp ${PP}", {"tp": "8", "pp": "4"}),
        ("torchrun --standalone train.py --bf16 --lr -1", {"standalone": True, "bf16": True, "lr": "-1"}),
        ("python -m torch.distributed.run --nnodes 2 -m pkg.train config.yaml --x", {"nnodes": "2", "x": True}),
        ("A=(--tp 8)\nA+=(--pp 2)\nrun --cp 1 ${A[@]} 2>&1 | tee --append log", {"cp": "1", "tp": "8", "pp": "2", "append": "log"}),
        ("srun bash -c \"train --tp 8 --pp 2\"", {"tp": "8", "pp": "2"}),
        ("CMD='train --tp 8'\neval \"$CMD\"", {"tp": "8"}),
        ("run --tp 8 $EXTRA", {"tp": "8"}),
        ("O='--tp 8'\nif [ $X ]; then O=\"$O --pp 2\"; fi\nrun --cp 1 $O", {"cp": "1", "tp": "8", "pp": MAYBE.format(2)}),
        ("if [ $X ]; then run --tp 8 --a 1; else run --tp 4 --a 1; fi", {"tp": "${condition:+4}", "a": "1"}),
        ("A=(--tp 8)\nif [ $X ]; then A+=(--bf16 --tp 4); fi\nrun ${A[@]}", {"tp": MAYBE.format(4), "bf16": MAYBE.format(True)}),
        ('echo "START: $(date)"\nmkdir -p $(pwd)/$LOGS\nrun --tp 8', {"tp": "8"}),
        ("run --tp $(nproc) $(cat args)", {"tp": "$(nproc)", "$(cat args)": "$(cat args)"}),
        ('cd -- "$(dirname "$0")"\nrun --tp 8', {"tp": "8"}),
    ],
)  # fmt: skip
def test_scripts_are_parsed_like_a_shell_does(script: str, expected: dict[str, object]) -> None:
    assert values(script, "train.sh") == expected


def test_key_value_arguments_after_a_file_are_entries() -> None:
    assert values("trainer train some.yaml cutoff_len=2048 --x 1") == {"cutoff_len": "2048", "x": "1"}


def test_exponentially_growing_variables_are_bounded() -> None:
    text = "A=xxxxxxxxxx\n" + "A=$A$A\n" * 60 + "run --a $A\n"
    assert len(str(values(text)["a"])) <= 20_000


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ('{"a": 1,}', "a.json", "is not JSON"),
        ('{"a": 1, "a": 2}', "a.json", "appears twice"),
        ("[" * 3000, "a.json", "is nested too deeply"),
        ("a = [" + "[" * 3000, "a.toml", "nested too deeply"),
        ("a = ", "a.toml", "is not TOML"),
        ("- 1\n- 2\n", "a.yaml", "holds no settings"),
        ("a: &x 1\nb: *x\n", "a.yaml", "anchors and aliases"),
        ("a: 1\n" * 2, "a.yaml", "appears twice"),
        ("a: 1\nb: {{ model }}\n", "a.yaml", r"a.yaml:2:4: the file is an unrendered template: {{ model }} stands here; render it"),
        ("a: 1\n{% if b %}\nb: 2\n{% endif %}\n", "a.yaml", "a.yaml:2:1: the file is an unrendered template: {% if b %}"),
        ('{"a": {{ b }}}', "a.json", "unrendered template: {{ b }}"),
        ("1: 2  # {{ b }}\n", "a.yaml", "a key is text"),
    ],
)
def test_files_without_settings_raise_a_one_line_error(text: str, path: str, message: str) -> None:
    with pytest.raises(FileError, match=message) as caught:
        parse(text, path)
    assert "\n" not in str(caught.value)


def test_unreadable_files_raise_a_one_line_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be read"):
        load(tmp_path / "none.json")
    with pytest.raises(FileError, match="cannot be read"):
        load(tmp_path)
    (tmp_path / "latin").write_bytes(b"a: \xff\xfe\n")
    with pytest.raises(FileError, match="UTF-8"):
        load(tmp_path / "latin")
    (tmp_path / "large").write_bytes(b"a: 1\n" * 100_000)
    with pytest.raises(FileError, match="larger than"):
        load(tmp_path / "large")


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("torchrun --nnodes 2 train.py --lr 1", {"nnodes"}),
        ("python -m torch.distributed.run --nnodes 2 train.py --lr 1", {"nnodes"}),
        ("python -m program --lr 1", set()),
        ("srun --wait=60 --jobid 7 bash -c 'torchrun --nnodes 2 train.py --lr 1'", {"wait", "jobid", "nnodes"}),
    ],
)
def test_options_before_the_program_are_the_launchers(command: str, names: set[str]) -> None:
    launch = parse(command, "run.sh").launch
    assert launch is not None
    assert launch.before == names
