"""Starts exported jobs like a user or a controller, and checks the notes of their ranks."""

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import yaml
from formats.frameworks import INSTALLED
from formats.plans import best_plans, deck
from ray_cluster import RayCluster
from slurm_cluster import SlurmCluster

from launch.launchers import LAUNCHERS, PACKAGES, PROBE
from launch.nodes import Node, Nodes, run_in_parallel
from launch.pods import configs, pods
from strategist.api import write_files
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.formats.catalog import find_format
from strategist.formats.format import ExportedFiles, File
from strategist.launch.catalog import with_job
from strategist.launch.job import JobOptions
from strategist.planning.planner import price_candidate
from strategist.profiles.situation import situation

GIVEN = "a value; with $signs"
"""A variable that every job passes to its ranks."""

PASS_ON = ("bash", "hosts", "slurm")
"""Kinds whose start takes arguments; those of the others are written into the job."""


@cache
def plan(nodes: int, each: int) -> Plan:
    """A data-parallel plan on CPUs, which every format can express."""
    workload = Workload(seq_len=64, global_batch=8, precision="fp32")
    asked = situation(Request(model="tiny", gpus=f"{nodes}x{each}xcpu", workload=workload))
    return price_candidate(asked, Candidate(layout=Layout(dp_replicate=nodes * each), knobs=Knobs()), deck=deck())


@cache
def large(format: str) -> Plan:
    """The best plan of a situation of several nodes, for a format."""
    [found] = best_plans(format, (3,))
    assert found.cluster.nodes > 1
    return found


@dataclass(frozen=True, kw_only=True)
class Start:
    """One start of a format's export by one kind of job.

    format, kind: ``bash`` is the start script of a single node.
    nodes, each: the nodes, and the number of ranks on each.
    folder: for the exported files and the notes of ranks.
    environment: of the nodes; ``PATH`` contains the launchers.
    given: value of a variable of the job, and an argument of its start script if it takes arguments.
    name: of the plan's model and cluster.
    """

    format: str
    kind: str
    nodes: Nodes
    each: int
    folder: Path
    environment: Mapping[str, str]
    given: str = GIVEN
    name: str = "tiny"

    @property
    def arguments(self) -> tuple[str, ...]:
        """Arguments of the start script, which launchers pass to the program; none with real launchers."""
        return () if self.given == GIVEN else (self.given,)

    @property
    def count(self) -> int:
        return 1 if self.kind == "bash" else 2

    @property
    def notes(self) -> Path:
        return self.folder / "notes"

    @property
    def exported(self) -> Path:
        return self.folder / "exported"

    def written(self) -> ExportedFiles:
        """The export with its job, and a placeholder for each file of the user."""
        asked = plan(self.count, self.each)
        asked = replace(asked, model=replace(asked.model, name=self.name), cluster=replace(asked.cluster, name=self.name))
        found = find_format(self.format).write(asked, {})
        if self.kind == "bash":
            own = tuple(File(name=name, text="pass\n") for name in found.user_files)
            return replace(found, files=(*found.files, *own))
        options = JobOptions(
            image="none:1", environment={"GIVEN": self.given},
            arguments="" if self.kind in PASS_ON else shlex.join(self.arguments),
            files=tuple(File(name=name, text="pass\n") for name in found.user_files),
            hosts=self.nodes.hosts, remote_shell=self.nodes.remote_shell,
            workdir=str(self.folder / "work") if self.kind == "rayjob" else "",
        )  # fmt: skip
        return with_job(asked, found, self.kind, options)

    def run(self, start: "Callable[[Start, ExportedFiles], None]") -> None:
        """Exports the plan, starts the job, and checks the notes of all ranks.

        Raises:
            AssertionError: the job did not start, or a rank has a wrong environment.
        """
        self.notes.mkdir()
        written = self.written()
        write_files(written, self.exported)
        start(self, written)
        self._check(written)

    def _check(self, written: ExportedFiles) -> None:
        world = self.count * self.each
        found = [json.loads(path.read_text()) for path in sorted(self.notes.iterdir())]
        assert sorted(int(note["RANK"]) for note in found) == list(range(world))
        by_node: dict[int, set[str]] = {}
        for note in found:
            rank = int(note["RANK"])
            assert (note["WORLD_SIZE"], note["LOCAL_RANK"]) == (str(world), str(rank % self.each)), note
            assert self.kind == "bash" or note["GIVEN"] == self.given, note
            lacking = {file.name for file in written.files if not file.name.endswith((".sbatch", "job.yaml"))} - set(note["files"])
            assert self.kind not in ("bash", "hosts", "slurm") or not lacking, lacking
            assert self.kind == "bash" or "train.sh" in note["files"]
            assert set(self.arguments) <= set(note["arguments"]), note
            by_node.setdefault(rank // self.each, set()).add(note["host"])
            if "PROBE_GLOO" in self.environment:
                assert note["sum"] == world * (world - 1) // 2, note
        assert all(len(hosts) == 1 for hosts in by_node.values()), by_node
        assert self.count == 1 or by_node[0] != by_node[1], by_node
        for name in ("MASTER_ADDR", "MASTER_PORT"):
            values = {note[name] for note in found}
            assert len(values) == 1, f"different rendezvous: {values}"
            assert values != {None}
        if self.kind not in ("bash", "rayjob"):
            assert {int(note["NODE_RANK"]) == int(note["RANK"]) // self.each for note in found} == {True}


def bash(start: Start, written: ExportedFiles) -> None:
    """Runs the start script on a node, from another folder."""
    *command, script = written.command
    words = start.nodes.nodes[0].command(*command, f"{start.exported.name}/{script}", *start.arguments)
    run_in_parallel([words], {**start.environment, "PROBE": str(start.notes)}, start.folder)


def hosts(start: Start, written: ExportedFiles) -> None:
    """Runs the script for hosts, with a remote shell."""
    run_in_parallel([[*written.command, *start.arguments]], {**start.environment, "PROBE": str(start.notes)}, start.exported)


def by_controllers(start: Start, written: ExportedFiles) -> None:
    """Runs the pods that Kubernetes and its operators create, one on each node."""
    documents = list(yaml.safe_load_all((start.exported / written.command[-1]).read_text()))
    found = pods(documents)
    assert len(found) == start.count
    volumes = start.folder / "volumes"
    commands = [
        node.command(
            "env", *(f"{name}={value}" for name, value in pod.environment.items()), *pod.words(volumes, configs(documents))
        )
        for node, pod in zip(start.nodes.nodes, found, strict=True)
    ]
    run_in_parallel(commands, {**start.environment, "PROBE": str(start.notes)}, start.folder)


def pod_names(written: ExportedFiles) -> list[tuple[str]]:
    """Host names of the pods."""
    return [(pod.name,) for pod in pods(list(yaml.safe_load_all(written.files[-1].text)))]


def batch(start: Start, written: ExportedFiles) -> None:
    """Runs the batch script like slurmd on the first node, with a stub of ``srun`` for these nodes."""
    tools = start.folder / "slurm"
    tools.mkdir()
    lines = ["#!/bin/bash", "while [[ $1 == --* ]]; do shift; done"]
    for number, node in enumerate(start.nodes.nodes):
        lines.append(f'SLURM_NODEID={number} {shlex.join(node.command())} "$@" & running+=($!)')
    _tool(tools / "srun", [*lines, 'code=0; for one in "${running[@]}"; do wait "$one" || code=$?; done; exit $code'])
    first = start.nodes.nodes[0]
    shown = [f'[[ $2 == hostnames ]] && printf "%s\\n" {" ".join(node.name for node in start.nodes.nodes)}']
    shown.append(f'[[ $2 == node ]] && echo "NodeName={first.name} Arch=x86_64 NodeAddr={first.address} NodeHostName=x"')
    _tool(tools / "scontrol", ["#!/bin/bash", *shown, "exit 0"])
    environment = {
        **start.environment, "PROBE": str(start.notes), "SLURM_JOB_NODELIST": "some[1-2]", "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_ID": "17",
    }  # fmt: skip
    environment["PATH"] = f"{tools}{os.pathsep}{environment['PATH']}"
    run_in_parallel([["bash", written.command[-1], *start.arguments]], environment, start.exported)


def _tool(path: Path, lines: Sequence[str]) -> None:
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o755)


def by_slurm(cluster: SlurmCluster) -> Callable[[Start, ExportedFiles], None]:
    """Submits the batch script to a real Slurm."""

    def submit(start: Start, written: ExportedFiles) -> None:
        environment = {**os.environ, **start.environment, **cluster.environment, "PROBE": str(start.notes), "PROBE_SLURM": "1"}
        command = ["sbatch", "--parsable", "--output=job.log", *written.command[1:]]
        done = subprocess.run(command, cwd=start.exported, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        number = done.stdout.strip()
        while cluster.output_of("squeue", "--noheader", f"--jobs={number}", "--states=all", "--format=%T").split()[:1] not in (
            [], ["COMPLETED"], ["FAILED"], ["CANCELLED"], ["NODE_FAIL"], ["TIMEOUT"],
        ):  # fmt: skip
            time.sleep(0.2)
        log = (start.exported / "job.log").read_text()
        assert len(list(start.notes.iterdir())) == start.count * start.each, log

    return submit


def by_ray(cluster: RayCluster) -> Callable[[Start, ExportedFiles], None]:
    """Runs the entry point of a RayJob on a real Ray cluster."""

    def enter(start: Start, written: ExportedFiles) -> None:
        config, job = yaml.safe_load_all((start.exported / written.command[-1]).read_text())
        folder = start.folder / "plan"
        folder.mkdir()
        for name, text in config["data"].items():  # as they are mounted in a pod
            (folder / name).write_text(text)
        [workers] = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
        assert workers["replicas"] == start.count
        variables = {item["name"]: item["value"] for item in workers["template"]["spec"]["containers"][0]["env"]}
        assert variables["GIVEN"] == GIVEN
        entry = shlex.split(job["spec"]["entrypoint"].replace("/plan/", f"{folder}/"))
        environment = {**start.environment, **variables, "PROBE": str(start.notes), "HOME": str(start.folder)}
        ray_job = {"runtime_env": {"env_vars": environment}}  # variables that a pod would have, and these nodes have not
        run_in_parallel([entry], {**environment, "RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps(ray_job)}, start.folder)

    return enter


def installed(format: str) -> dict[str, str]:
    """Environment with a format's real launcher on the PATH; empty if not installed."""
    launcher = LAUNCHERS[format]
    needed = [INSTALLED / folder for folder in PACKAGES[launcher]]
    if not all((folder / "ready").exists() for folder in needed):
        return {}
    programs = [*(str(folder / "bin") for folder in needed), str(Path(sys.executable).parent), os.environ["PATH"]]
    packages = [str(PROBE), *map(str, needed)]
    return {
        "PATH": os.pathsep.join(programs), "PYTHONPATH": os.pathsep.join(packages), "OMP_NUM_THREADS": "1", "PROBE_GLOO": "1",
        "HF_HUB_OFFLINE": "1",
    }  # fmt: skip


STUBBED: dict[str, Callable[[Start, ExportedFiles], None]] = {
    "bash": bash, "hosts": hosts, "slurm": batch, "job": by_controllers, "jobset": by_controllers, "pytorchjob": by_controllers,
    "trainjob": by_controllers,
}  # fmt: skip
"""Starters of each kind of job without its scheduler."""

__all__ = ["STUBBED", "Node", "Start", "by_ray", "by_slurm", "installed", "large", "plan", "pod_names"]
