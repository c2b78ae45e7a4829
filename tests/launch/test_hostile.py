"""Hostile names, values and arguments are passed through jobs unchanged, and never executed."""

import os
from pathlib import Path

import pytest
from chaos import Chaos
from formats.hostile_texts import CANARY, HOSTILE

from launch.launchers import stubs as stub_launchers
from launch.nodes import stubs
from launch.starts import STUBBED, Start, plan
from strategist.errors import InputError
from strategist.formats.catalog import find_format, formats
from strategist.formats.format import File
from strategist.launch.catalog import with_job
from strategist.launch.job import JobOptions

CELLS = [(format, kind) for format in formats() for kind in STUBBED]


@pytest.mark.chaos("Security", "hostile names, variables and arguments in started jobs of every format and kind")
def test_hostile_texts_in_jobs_are_never_executed(tmp_path: Path, chaos: Chaos) -> None:
    path = f"{stub_launchers(tmp_path / 'bin')}{os.pathsep}{os.environ['PATH']}"
    chance, started = chaos.random(), 0
    for format, kind in chance.sample(CELLS, chaos.size(2, len(CELLS))):
        for text in chance.sample([text for text in HOSTILE if text.isprintable()], chaos.size(1, 20)):
            started += 1
            folder = tmp_path / f"{started}"
            folder.mkdir()
            with stubs(folder) as nodes:
                Start(
                    format=format, kind=kind, nodes=nodes, each=1, folder=folder, environment={"PATH": path}, given=text, name=text
                ).run(STUBBED[kind])  # fmt: skip
    assert not list(tmp_path.rglob(CANARY))
    chaos.found(f"{started} jobs started with the texts, 0 canaries")


@pytest.mark.parametrize("kind", ["hosts", "slurm"])
def test_a_multiline_variable_stays_one_variable(kind: str, tmp_path: Path) -> None:
    path = f"{stub_launchers(tmp_path / 'bin')}{os.pathsep}{os.environ['PATH']}"
    text = f"a\n#SBATCH -w x\n$(touch {CANARY})"
    with stubs(tmp_path) as nodes:
        start = Start(format="deepspeed", kind=kind, nodes=nodes, each=1, folder=tmp_path, environment={"PATH": path}, given=text)
        start.run(STUBBED[kind])
    assert not list(tmp_path.rglob(CANARY))


WRONG = (
    ("slurm", {"slurm": "--partition=gpu\n#SBATCH -w x"}, "--slurm '--partition=gpu.*holds a line break"),
    ("slurm", {"slurm": "gpu"}, "--slurm gpu: gpu is not an option"),
    ("slurm", {"slurm": "--a 'b"}, "cannot be parsed: No closing quotation"),
    ("slurm", {"workdir": "/a\nb"}, "--workdir '/a.*holds a line break"),
    ("hosts", {"hosts": ""}, "--hosts: is missing; name the hosts of --job hosts"),
    ("hosts", {"hosts": "a"}, "--hosts a: names 1 hosts, and the plan has 2 nodes of 1 devices"),
    ("hosts", {"hosts": "a,$(id)"}, "is not a host; write names or addresses"),
    ("hosts", {"hosts": "a,-oProxyCommand=id"}, "is not a host; write names or addresses"),
    ("hosts", {"hosts": "a,a"}, "each host is named once"),
    ("hosts", {"hosts": "a,b", "remote_shell": "ssh"}, "has no place for {host} and {command}"),
    ("jobset", {"image": "a;b"}, "--image a;b: is not an image name"),
    ("jobset", {"image": "a", "files": (File(name="../x", text=""),)}, "has a name with other characters"),
    ("jobset", {"image": "a", "files": (File(name="train.sh", text=""),)}, "--file train.sh: is the name of an exported file"),
    ("jobset", {"image": "a", "files": (File(name="big", text="x" * 2**20),)}, "a ConfigMap holds 1,048,576"),
    ("jobset", {"image": "a"}, "runs train.py, which no export holds, .*; add --file train.py, or --workdir"),
    ("jobset", {"image": "a", "environment": {"A": "b"}}, "runs pretrain_gpt.py, .*; add .*, or --env MEGATRON_LM=FOLDER"),
    ("cron", {}, "--job cron: is not known; on one machine .* without --job; choose one of slurm, hosts, job, jobset"),
)  # fmt: skip


@pytest.mark.parametrize(("kind", "options", "words"), WRONG, ids=[words for _, _, words in WRONG])
def test_a_wrong_job_option_prints_one_error_line(kind: str, options: dict[str, str], words: str) -> None:
    asked = plan(2, 1)
    names = {"runs train.py": "deepspeed", "runs pretrain_gpt.py": "megatron-lm"}
    name = next((name for start, name in names.items() if words.startswith(start)), "pytorch")
    with pytest.raises(InputError, match=words) as caught:
        with_job(asked, find_format(name).write(asked, {}), kind, JobOptions(**options))
    assert "\n" not in str(caught.value)
