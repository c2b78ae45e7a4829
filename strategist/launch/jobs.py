"""Jobs by name."""

from dataclasses import replace

from strategist.contract.plan import Plan
from strategist.errors import InputError, not_among
from strategist.formats.format import Written
from strategist.launch import kuberay, kubernetes, slurm
from strategist.launch.job import NOTHING, Texts
from strategist.launch.job import job as job_of

JOBS = ("slurm", *kubernetes.KINDS, *kuberay.KINDS)
"""Schedulers' kinds of jobs; all but the first are Kubernetes'."""


def with_job(
    plan: Plan,
    written: Written,
    name: str,
    image: str = "",
    volumes: Texts = NOTHING,
    environment: Texts = NOTHING,
    resources: Texts = NOTHING,
) -> Written:
    """An exported plan with what a scheduler is to be given; the command is then the scheduler's.

    Raises:
        InputError: no job has the name, the image is missing or none, or a volume, variable or resource is none.
    """
    if name not in JOBS:
        raise not_among(f"--job {name}", name, JOBS, "is not known" if name else "is missing")
    asked = job_of(plan, written, image, volumes, environment, resources)
    for option, given in (("--volume", volumes), ("--resource", resources)):
        if name == "slurm" and given:
            raise InputError(option, "is for jobs of Kubernetes", "leave it out: nodes of Slurm have what they have")
    if name == "slurm":
        more = slurm.files(asked)
        command: tuple[str, ...] = ("sbatch", slurm.NAME)
    else:
        more = (kuberay if name in kuberay.KINDS else kubernetes).files(asked, name)
        command = ("kubectl", "apply", "-f", more[-1].name)
    return replace(written, files=(*written.files, *more), command=command)
