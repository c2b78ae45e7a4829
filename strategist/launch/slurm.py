"""A batch script of Slurm: one task a node, which starts the ranks there; a requeued job begins again."""

import shlex

from strategist.formats.format import File
from strategist.launch.job import Job

NAME = "job.sbatch"
FIRST_PORT, PORTS = 20000, 10000
"""Jobs meet at different ports, below those that a kernel gives out by itself."""


def files(job: Job) -> tuple[File, ...]:
    """The script, for ``sbatch`` in the folder of the exported files, which all nodes see.

    A job has its nodes to itself, with all of their cores and memory: one task would get one core. Its ranks meet at the address
    by which Slurm reaches the first node, since a node's own name leads to its loopback on many systems.
    """
    wanted = [f"--job-name={job.name}", f"--nodes={job.nodes}", "--ntasks-per-node=1", "--exclusive", "--mem=0"]
    wanted += ["--requeue", "--output=%x-%j.log"]
    if job.kind == "cuda":
        wanted.append(f"--gpus-per-node={job.devices_per_node}")
    on_node = f"export NODE_RANK=$SLURM_NODEID; exec {shlex.join(job.written.command)} " + '"$@"'
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {option}" for option in wanted),
        *(f"#SBATCH {shlex.quote(word)}" for word in job.options.slurm_words),
        "set -euo pipefail",
        *_placed(job),
        'read -r first < <(scontrol show hostnames "$SLURM_JOB_NODELIST")',
        "MASTER_ADDR=$(scontrol show node --oneliner \"$first\" | sed -n 's/.* NodeAddr=\\([^ ]*\\).*/\\1/p')",
        f"MASTER_PORT=$(({FIRST_PORT} + SLURM_JOB_ID % {PORTS}))",
        "export MASTER_ADDR MASTER_PORT NNODES=$SLURM_JOB_NUM_NODES",
        *(f"export {name}={shlex.quote(value)}" for name, value in job.options.environment.items()),
        f"srun --kill-on-bad-exit=1 --cpu-bind=none bash -c {shlex.quote(on_node)} node " + '"$@"',
    ]
    return (File(name=NAME, text="\n".join(lines) + "\n", runs=True),)


def _placed(job: Job) -> list[str]:
    """Copies the exported files into the folder in which the command runs, before it starts anywhere."""
    if not job.options.workdir:
        return []
    folder, names = shlex.quote(job.options.workdir), shlex.join(file.name for file in job.written.files)
    return [f"mkdir -p -- {folder}", f"cp -- {names} {folder}", f"cd -- {folder}"]
