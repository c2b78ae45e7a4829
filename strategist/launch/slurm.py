"""A batch script of Slurm: one task a node, which starts the ranks there; a requeued job begins again."""

import shlex

from strategist.formats.format import File
from strategist.launch.job import PORT, Job

NAME = "job.sbatch"


def files(job: Job) -> tuple[File, ...]:
    """The script, for ``sbatch`` in the folder of the exported files."""
    wanted = [f"--job-name={job.name}", f"--nodes={job.nodes}", "--ntasks-per-node=1", "--requeue", "--output=%x-%j.log"]
    if job.kind == "cuda":
        wanted.append(f"--gpus-per-node={job.devices_per_node}")
    on_node = f"export NODE_RANK=$SLURM_NODEID; exec {shlex.join(job.written.command)} " + '"$@"'
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {option}" for option in wanted),
        "set -euo pipefail",
        'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        'MASTER_ADDR=$(srun --nodes=1 --ntasks=1 --nodelist="$first" hostname --ip-address | cut -d " " -f 1)',
        f"export MASTER_ADDR MASTER_PORT={PORT} NNODES=$SLURM_JOB_NUM_NODES",
        'export RDZV_ENDPOINT="$MASTER_ADDR:$MASTER_PORT"',
        *(f"export {name}={shlex.quote(value)}" for name, value in job.environment.items()),
        f"srun --kill-on-bad-exit=1 bash -c {shlex.quote(on_node)} node " + '"$@"',
    ]
    return (File(name=NAME, text="\n".join(lines) + "\n", runs=True),)
