"""A batch script of Slurm: one task per node, which starts the ranks there. A training that fails starts again in the same
allocation, on all nodes; a job whose node fails is requeued.
"""

import shlex

from strategist.formats.format import File
from strategist.launch.job import Job

NAME = "job.sbatch"
FIRST_PORT, PORTS = 20000, 10000
"""Range of rendezvous ports, one per job, below those that the kernel assigns."""


def files(job: Job) -> tuple[File, ...]:
    """The script, for ``sbatch`` in the folder of the exported files, which all nodes share.

    The job gets whole nodes, with all cores and all memory: by default a task would get one core. Ranks meet at the address by
    which Slurm reaches the first node, because on many systems a node's own name resolves to its loopback. A requeued job adds to
    its log, which otherwise would lose what the node that failed wrote.
    """
    options = [f"--job-name={job.name}", f"--nodes={job.nodes}", "--ntasks-per-node=1", "--exclusive", "--mem=0"]
    options += ["--requeue", "--output=%x-%j.log", "--open-mode=append"]
    if job.kind == "cuda":
        options.append(f"--gpus-per-node={job.devices_per_node}")
    on_node = f"export NODE_RANK=$SLURM_NODEID; exec {shlex.join(job.written.command)} " + '"$@"'
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {option}" for option in options),
        *(f"#SBATCH {shlex.quote(word)}" for word in job.options.slurm_words),
        "set -euo pipefail",
        *_copy_lines(job),
        'read -r first < <(scontrol show hostnames "$SLURM_JOB_NODELIST")',
        "MASTER_ADDR=$(scontrol show node --oneliner \"$first\" | sed -n 's/.* NodeAddr=\\([^ ]*\\).*/\\1/p')",
        f"MASTER_PORT=$(({FIRST_PORT} + SLURM_JOB_ID % {PORTS}))",
        "export MASTER_ADDR MASTER_PORT NNODES=$SLURM_JOB_NUM_NODES",
        *(f"export {name}={shlex.quote(value)}" for name, value in job.options.environment.items()),
        *_start_lines(f"srun --kill-on-bad-exit=1 --cpu-bind=none bash -c {shlex.quote(on_node)} node " + '"$@"', job.restarts),
    ]
    return (File(name=NAME, text="\n".join(lines) + "\n", runs=True),)


def _start_lines(command: str, restarts: int) -> list[str]:
    """Commands that start the training, again when it fails. ``srun`` returns when the ranks of all nodes have ended."""
    if not restarts:
        return [command]
    return [
        f"for start in {{1..{restarts + 1}}}; do",
        f"  code=0; {command} || code=$?",
        "  if ((code == 0)); then break; fi",
        f'  echo "start $start of at most {restarts + 1} ended with exit code $code" >&2',
        "done",
        'exit "$code"',
    ]


def _copy_lines(job: Job) -> list[str]:
    """Commands that copy the exported files into the working folder before the command starts."""
    if not job.options.workdir:
        return []
    folder, names = shlex.quote(job.options.workdir), shlex.join(file.name for file in job.written.files)
    return [f"mkdir -p -- {folder}", f"cp -- {names} {folder}", f"cd -- {folder}"]
