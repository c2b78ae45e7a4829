"""Kinds of jobs by name."""

from collections.abc import Sequence
from dataclasses import replace

from strategist.contract.plan import Plan
from strategist.errors import InputError, not_among
from strategist.formats.commented_text import heading
from strategist.formats.format import ExportedFiles, File
from strategist.launch import hosts, kuberay, kubernetes, slurm
from strategist.launch.job import JobOptions, job as job_of, job_needs, missing

CONTAINERS = (*kubernetes.KINDS, *kuberay.KINDS)
JOBS = ("slurm", "hosts", *CONTAINERS)
"""What starts an exported plan; CONTAINERS are Kubernetes' kinds."""

START_COMMANDS = {"slurm": ("sbatch",), "hosts": ("bash",)}
"""What is called with the last file of a job."""

KINDS_OF_OPTION = {
    "image": CONTAINERS, "volumes": CONTAINERS, "secrets": CONTAINERS, "resources": CONTAINERS,
    "node_labels": CONTAINERS, "arguments": tuple(kind for kind in JOBS if kind != "raycluster"),
    "hosts": ("hosts",), "remote_shell": ("hosts",),
    "slurm": ("slurm",), "restarts": tuple(kind for kind in JOBS if kind not in ("raycluster", "trainjob")),
}  # fmt: skip
"""Options that are for some kinds only."""

NONE = JobOptions()


def with_job(plan: Plan, written: ExportedFiles, kind: str, options: JobOptions = NONE) -> ExportedFiles:
    """An exported plan with the files of a job; the command is then the job's.

    Raises:
        InputError: no job has the name, an option that it needs is missing, or nothing brings a file to the nodes that they run.
    """
    if kind not in JOBS:
        law = "is not known" if kind else "is missing"
        raise not_among(f"--job {kind}", kind, JOBS, f"{law}; on one machine the export's own script starts it without --job")
    job = job_of(plan, written, options)
    carries = kind in CONTAINERS and kind != "raycluster"
    if carries and (missing_files := missing(job)) and not options.workdir:
        law = f"runs {' and '.join(missing_files)}, which no export holds, and nothing brings that into its containers"
        do = f"add {' '.join(f'--file {name}' for name in missing_files)}, or --workdir with the folder of the image that holds it"
        do += f", or --env {written.user_folder}=FOLDER" if written.user_folder else ""
        raise InputError(f"--job {kind}", law, do)
    if kind in CONTAINERS:
        job_files = (kuberay if kind in kuberay.KINDS else kubernetes).files(job, kind)
    else:
        job_files = (slurm if kind == "slurm" else hosts).files(job)
    needs = job_needs(job, kind) if kind != "raycluster" else ()
    *others, last = job_files
    files = (*job.written.files, *others, _with_remarks(last, [f"missing: {need}" for need in needs]))
    command = (*START_COMMANDS.get(kind, ("kubectl", "apply", "-f")), last.name)
    return replace(job.written, files=files, command=command, needs=(*job.written.needs, *needs))


def _with_remarks(file: File, lines: Sequence[str]) -> File:
    """The file with comments at its beginning, or after the line that names its interpreter."""
    first, _, rest = file.text.partition("\n") if file.text.startswith("#!") else ("", "", file.text)
    return replace(file, text=(f"{first}\n" if first else "") + (heading(lines) if lines else "") + rest)


def unused_options(kind: str, options: JobOptions) -> tuple[str, ...]:
    """Options that are given and that the kind of job has no use for."""
    return tuple(
        name for name, kinds in KINDS_OF_OPTION.items() if kind not in kinds and getattr(options, name) != getattr(NONE, name)
    )
