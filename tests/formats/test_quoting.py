"""Hostile texts survive a round trip through exported files unchanged, add no entry, and are never run."""

import ast
import json
import os
import random
import shlex
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import tomlkit
import yaml
from chaos import Chaos
from yaml12 import parse_yaml

from formats.hostile_texts import CANARY, HOSTILE, random_texts
from formats.plans import a_plan
from strategist.contract.plan import Plan
from strategist.formats.catalog import find_format, formats
from strategist.formats.commented_text import json_text, script, toml_text, yaml_text
from strategist.formats.source import parse
from strategist.launch.catalog import CONTAINERS, with_job
from strategist.launch.job import JobOptions

PRINTABLE = [text for text in HOSTILE if text.isprintable()]
"""Texts that a name may contain."""

EACH = 250
"""Number of texts in one file."""

READ = (("value", "$.list"), ("key", "$.keys"))
SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"


def texts(chaos: Chaos) -> Iterator[list[str]]:
    """All hostile texts and random ones, in groups of one file each."""
    assert len(HOSTILE) >= 100
    remaining = iter([*HOSTILE, *random_texts(chaos.random(), chaos.size(100, 20_000))])
    while some := list(islice(remaining, EACH)):
        yield some


def yaml_1_2(text: str) -> list[Any]:
    """The documents of a text as a YAML 1.2 reader parses them; PyYAML implements 1.1."""
    return parse_yaml(text, multi=True)


@pytest.mark.chaos("Security", "hostile texts round-trip through YAML with two readers")
def test_hostile_texts_survive_yaml(chaos: Chaos) -> None:
    count = 0
    for some in texts(chaos):
        data = {"list": some, "values": {f"k{index}": text for index, text in enumerate(some)}, "keys": dict.fromkeys(some, 1)}
        written = yaml_text(data, {"list": "a\nb: c"})
        assert yaml.safe_load(written) == data
        assert yaml_1_2(written) == [data]
        count += len(some)
    chaos.found(f"{count:,} as values, items and keys: all read back unchanged by PyYAML and yaml12")


@pytest.mark.chaos("Security", "hostile texts round-trip through JSON with two readers")
def test_hostile_texts_survive_json(chaos: Chaos) -> None:
    count = 0
    for some in texts(chaos):
        data = {"list": some, "keys": dict.fromkeys(some, 1)}
        written = json_text(data)
        assert json.loads(written) == data
        with closing(sqlite3.connect(":memory:")) as database:
            [items, keys] = (
                database.execute(f"SELECT {what} FROM json_each(?, ?)", (written, path)).fetchall() for what, path in READ
            )
        assert [value for (value,) in items] == some
        assert [key for (key,) in keys] == list(data["keys"])
        count += len(some)
    chaos.found(f"{count:,} as items and keys: all read back unchanged by json and SQLite")


@pytest.mark.chaos("Security", "hostile texts round-trip through TOML with two readers")
def test_hostile_texts_survive_toml(chaos: Chaos) -> None:
    count = 0
    for some in texts(chaos):
        data = {"section": {"list": some, "table": {"a": some[0]}, **{f"k{index}": text for index, text in enumerate(some)}}}
        written = toml_text(data)
        assert tomllib.loads(written) == data
        assert tomlkit.parse(written).unwrap() == data
        count += len(some)
    chaos.found(f"{count:,} as values and items: all read back unchanged by tomllib and tomlkit")


def arguments_and_variables(command: Sequence[str], folder: Path) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment variables of the program that a script starts."""
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, env={"PATH": os.environ["PATH"]})
    arguments, variables = json.loads(done.stdout)
    return arguments, variables


@pytest.mark.chaos("Security", "hostile texts as arguments and variables of a shell script, with two readers")
def test_hostile_texts_survive_shell_scripts(tmp_path: Path, chaos: Chaos) -> None:
    count = 0
    for some in texts(chaos):
        variables = {f"V{index}": text for index, text in enumerate(some)}
        written = script((sys.executable, "-c", SHOW), [((text,), text) for text in some], about=some, environment=variables)
        arguments, seen = arguments_and_variables(["bash", "-c", written], tmp_path)
        assert arguments == some
        assert variables.items() <= seen.items()
        exports = written[written.index("pipefail\n") + len("pipefail\n") : written.rindex("\narguments=(\n")]
        _, seen = arguments_and_variables(
            ["sh", "-c", f"{exports}\nexec {shlex.quote(sys.executable)} -c {shlex.quote(SHOW)}"], tmp_path
        )
        assert variables.items() <= seen.items()
        words = written[written.rindex("\narguments=(\n") + len("\narguments=(\n") : written.rindex("\n)\n")]
        assert shlex.split(words, comments=True) == some
        count += len(some)
    assert list(tmp_path.iterdir()) == []
    chaos.found(f"{count:,} as arguments, variables and comments: all read back unchanged by bash, sh and shlex; 0 executed")


ASSETS = "./assets/hf/"


@pytest.fixture(params=formats())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def with_names(plan: Plan, text: str) -> Plan:
    """The plan with this text as its names of model, cluster and device."""
    return replace(
        plan,
        model=replace(plan.model, name=text),
        cluster=replace(plan.cluster, name=text, device=replace(plan.cluster.device, name=text)),
    )


def entries(plan: Plan, text: str, name: str) -> dict[str, Any]:
    """Entries of the exported files of a plan with such names, by file and name; a Python program is one entry."""
    found: dict[str, Any] = {}
    for file in find_format(name).write(with_names(plan, text), {"tp": text}).files:
        if file.name.endswith(".py"):
            found[file.name] = syntax_tree(file.text, text)
        else:
            found |= {f"{file.name} {key}": entry.value for key, entry in parse(file.text, file.name).entries.items()}
    return found


def syntax_tree(source: str, text: str) -> str:
    """The syntax tree, with the text replaced by "plain"."""
    tree = ast.parse(source)
    plain = {renamed(value, text): value for value in ("plain", f"{ASSETS}plain")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = plain.get(node.value, node.value)
    return ast.dump(tree)


def renamed(value: Any, text: str) -> Any:
    """The value of an entry if the name is this text: a tokenizer folder has the last part of the name."""
    return (
        {"plain": text, f"{ASSETS}plain": ASSETS + text.rpartition("/")[2]}.get(value, value) if isinstance(value, str) else value
    )


@pytest.mark.chaos("Security", "hostile names of models, clusters and devices, and hostile reasons, in the files of each format")
def test_hostile_names_change_no_other_entry_of_exported_files(name: str, chaos: Chaos) -> None:
    plan = a_plan(name)
    plain = entries(plan, "plain", name)
    tried = chaos.random().sample(PRINTABLE, chaos.size(3, len(PRINTABLE)))
    for text in tried:
        assert entries(plan, text, name) == {key: renamed(value, text) for key, value in plain.items()}, text
    chaos.found(f"{len(tried)} texts: {len(plain)} entries, 0 added, 0 removed, 0 changed")


@pytest.fixture
def stubs(tmp_path: Path) -> Path:
    """A folder with fake launchers that record their arguments."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for syntax_tree in (
        "torchrun",
        "accelerate",
        "deepspeed",
        "axolotl",
        "llamafactory-cli",
        "python",
        "python3",
        "trl",
        "srun",
        "scontrol",
    ):
        (folder / syntax_tree).write_text('#!/bin/sh\nprintf \'%s\\0\' "$@" >> "$SEEN"\n')
        (folder / syntax_tree).chmod(0o755)
    return folder


@pytest.mark.chaos("Security", "running the scripts of each format with hostile names")
def test_scripts_with_hostile_names_run_no_other_command(name: str, tmp_path: Path, stubs: Path, chaos: Chaos) -> None:
    plan = a_plan(name)
    tried = chaos.random().sample(PRINTABLE, chaos.size(2, len(PRINTABLE)))
    ran = 0
    for number, text in enumerate(["plain", *tried]):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        written = find_format(name).write(with_names(plan, text), {"tp": text})
        for file in written.files:
            (folder / file.name).write_text(file.text, encoding="utf-8")
        for file in written.files:
            if file.runs:
                environment = {"PATH": f"{stubs}:{os.environ['PATH']}", "SEEN": str(folder / "seen"), "HOME": str(tmp_path)}
                environment |= {"NODE_RANK": "0", "NNODES": "1", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
                subprocess.run(["bash", file.name], cwd=folder, env=environment, check=False, capture_output=True)
                ran += 1
        left = {path.name for path in folder.iterdir()} - {file.name for file in written.files}
        assert left <= {"seen"}, (text, left)
        seen = (folder / "seen").read_bytes()
        if text == "plain":
            plain = seen
        assert seen == plain.replace(b"plain", text.encode()), text
    assert not (tmp_path / CANARY).exists()
    chaos.found(f"{ran} runs, 0 canaries")


def paths(data: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of a document with its path."""
    if isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from paths(value, f"{place}/{key}")
    else:
        yield place, data


@pytest.mark.parametrize("job", CONTAINERS)
@pytest.mark.chaos("Security", "hostile variables and names in Kubernetes manifests, with two readers")
def test_hostile_names_change_no_other_value_of_kubernetes_manifests(job: str, chaos: Chaos) -> None:
    plan = a_plan("pytorch")

    def manifests(text: str) -> str:
        written = find_format("pytorch").write(with_names(plan, text) if text.isprintable() else plan, {"tp": text})
        options = JobOptions(image="torch:2", environment={"GIVEN": text}, volumes={"data": f"/{text}"})
        return with_job(plan, written, job, options).files[-1].text

    plain = dict(paths(list(yaml.safe_load_all(manifests("plain")))))
    tried = chaos.random().sample(HOSTILE, chaos.size(3, len(HOSTILE)))
    for text in tried:
        written = manifests(text)
        found = dict(paths(list(yaml.safe_load_all(written))))
        again = dict(paths(yaml_1_2(written)))
        assert found == again
        assert found.keys() == plain.keys(), text
        for place, value in plain.items():
            if place.startswith("/0/data/"):  # the exported files have their own test
                continue
            expected = value.replace("plain", text) if isinstance(value, str) else value
            assert found[place] == expected, (text, place)
    chaos.found(f"{len(tried)} texts: {len(plain)} values each, 0 added, 0 removed")


@pytest.mark.chaos("Security", "hostile variables in a Slurm batch script")
def test_hostile_variables_survive_slurm_batch_scripts(tmp_path: Path, stubs: Path, chaos: Chaos) -> None:
    plan = a_plan("pytorch")
    tried = random.Random(chaos.seed).sample(HOSTILE, chaos.size(4, len(HOSTILE)))
    variables = {f"V{index}": text for index, text in enumerate(tried)}
    (stubs / "srun").write_text(f"#!{sys.executable}\n{SHOW}\n")
    (stubs / "scontrol").write_text("#!/bin/sh\necho a NodeAddr=b c\n")

    def written(environment: dict[str, str]) -> str:
        options = JobOptions(environment=environment)
        return with_job(plan, find_format("pytorch").write(plan, {}), "slurm", options).files[-1].text

    text = written(variables)
    before = text.partition("set -euo pipefail")[0]
    assert before == written({}).partition("set -euo pipefail")[0], "a header was added"
    environment = {
        "PATH": f"{stubs}:{os.environ['PATH']}",
        "SLURM_JOB_NODELIST": "a",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_JOB_ID": "1",
        "SEEN": str(tmp_path / "seen"),
    }
    done = subprocess.run(["bash", "-c", text], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    _, seen = json.loads(done.stdout.splitlines()[-1])
    assert variables.items() <= seen.items()
    assert {path.name for path in tmp_path.iterdir()} <= {"bin", "seen"}
    chaos.found(f"{len(tried)} texts read back unchanged, 0 headers added, 0 executed")
