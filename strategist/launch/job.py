"""Job: starts an exported plan on every node of its cluster, with the user's additions."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import field, replace
from types import MappingProxyType

from strategist.contract.name_rules import check_name
from strategist.contract.plan import Plan
from strategist.errors import InputError
from strategist.executors.engine import SSH
from strategist.formats.format import ExportedFiles, File
from strategist.formats.launch_commands import PORT
from strategist.frozen import frozen

Texts = Mapping[str, str]
RESERVED_VOLUMES = ("plan", "memory", "work")
"""Volumes of every pod: the exported files, shared memory, and the working folder."""

MAX_RESTARTS = 10_000
"""Restarts within a year of a job that fails every hour; Kubernetes counts in 32 bits."""

NOTHING: Texts = MappingProxyType({})

_NAME, _VARIABLE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"), re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}", re.ASCII)
_DEVICE = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}/[A-Za-z0-9][\w.-]{0,62}", re.ASCII)
"""Resources that plugins of Kubernetes add, such as network adapters; also names of labels."""

_STANDARD = re.compile(r"cpu|memory|ephemeral-storage|hugepages-[0-9]{1,4}[KMG]i")
_QUANTITY = re.compile(r"[1-9][0-9]{0,8}([kMGT]i?)?", re.ASCII)
_LABEL = re.compile(r"[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", re.ASCII)
"""Values of labels, and their names without a prefix."""

_SECRET = re.compile(rf"{_NAME.pattern}/[\w.-]{{1,253}}", re.ASCII)
_IMAGE = re.compile(r"[A-Za-z0-9][\w./:@-]{0,254}", re.ASCII)
_FILE = re.compile(r"[A-Za-z0-9_][\w.-]{0,252}", re.ASCII)
"""Names of files that a ConfigMap can hold."""

__all__ = ["NOTHING", "PORT", "RESERVED_VOLUMES", "Job", "JobOptions", "Texts", "job"]


@frozen
class JobOptions:
    """Options of a job that the plan does not state. Each kind of job uses those that apply to it.

    image: the container's, for jobs of Kubernetes.
    volumes: claims of Kubernetes, with the folder where each is mounted.
    environment: variables of the command.
    secrets: variables whose value is in a Secret of Kubernetes, with its name and key, as in ``hub/token``.
    resources: further Kubernetes resources of a node's container by name, such as memory and network adapters: the quantity.
    node_labels: labels of the nodes that ranks may run on, with their values.
    files: of the user's, shipped with the exported ones: a training script, a model's code.
    workdir: the folder on each node in which the command runs; the exported files are copied into it.
    hosts: names, separated by commas, each with its address behind ``=`` where that is another.
    remote_shell: how a command gets to a host: words with {host} and {command}.
    slurm: more options of sbatch, as words of a shell.
    arguments: further arguments of the exported start script, as words of a shell.
    restarts: how many times a training that failed starts again, at most; None: the plan's ``max_restarts``.
    """

    image: str = ""
    volumes: Texts = field(default_factory=dict)
    environment: Texts = field(default_factory=dict)
    secrets: Texts = field(default_factory=dict)
    resources: Texts = field(default_factory=dict)
    node_labels: Texts = field(default_factory=dict)
    files: tuple[File, ...] = ()
    workdir: str = ""
    hosts: str = ""
    remote_shell: str = SSH
    slurm: str = ""
    arguments: str = ""
    restarts: int | None = None

    def __post_init__(self) -> None:
        self._check_container()
        self._check_variables()
        self._check_nodes()
        self._check_start()

    def _check_container(self) -> None:
        if self.image and not _IMAGE.fullmatch(self.image):
            do = "write e.g. pytorch/pytorch:2.13.0-cuda12.8-cudnn9-runtime"
            raise InputError(f"--image {self.image}", "is not an image name", do)
        for claim, folder in self.volumes.items():
            if not _NAME.fullmatch(claim) or not folder.startswith("/"):
                raise InputError(
                    f"--volume {claim}={folder}", "is not a claim and its folder", "write e.g. --volume datasets=/data"
                )
            if claim in RESERVED_VOLUMES:
                law = f"{', '.join(RESERVED_VOLUMES[:-1])} and {RESERVED_VOLUMES[-1]} are the job's own"
                raise InputError(f"--volume {claim}={folder}", law, "name the claim otherwise")

    def _check_variables(self) -> None:
        for name in self.environment:
            if not _VARIABLE.fullmatch(name):
                raise InputError(f"--env {name}", "is not a variable name", "write e.g. --env HF_HOME=/data/hf")
        for name, secret_key in self.secrets.items():
            if not _VARIABLE.fullmatch(name) or not _SECRET.fullmatch(secret_key):
                do = "write e.g. --secret HF_TOKEN=hub/token"
                raise InputError(f"--secret {name}={secret_key}", "is not a variable and a Secret's key", do)
            if name in self.environment:
                raise InputError(f"--secret {name}={secret_key}", "is set by --env, too", "leave one of the two out")

    def _check_nodes(self) -> None:
        for name, count in self.resources.items():
            if not (_DEVICE.fullmatch(name) or _STANDARD.fullmatch(name)) or not _QUANTITY.fullmatch(count):
                law = "is not a resource of Kubernetes and its quantity"
                do = "write e.g. --resource vpc.amazonaws.com/efa=32 or --resource memory=900Gi"
                raise InputError(f"--resource {name}={count}", law, do)
        for name, value in self.node_labels.items():
            if not (_DEVICE.fullmatch(name) or _LABEL.fullmatch(name)) or not _LABEL.fullmatch(value):
                do = "write e.g. --node-label nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3"
                raise InputError(f"--node-label {name}={value}", "is not a label and its value", do)

    def _check_start(self) -> None:
        for file in self.files:
            if not _FILE.fullmatch(file.name):
                law = "has a name with other characters than letters, digits, dots, dashes and underscores"
                raise InputError(f"--file {file.name!r}", law, "name it otherwise")
        check_name("--workdir", self.workdir)
        if invalid := next((word for word in self.slurm_words if not word.startswith("-")), ""):
            do = "write e.g. --slurm='--partition=gpu --time=60'"
            raise InputError(f"--slurm {self.slurm}", f"{invalid} is not an option", do)
        _words("--arguments", self.arguments)
        if self.restarts is not None and not 0 <= self.restarts <= MAX_RESTARTS:
            do = f"write a number from 0 to {MAX_RESTARTS}"
            raise InputError(f"--restarts {self.restarts}", "is not a number of restarts", do)

    @property
    def slurm_words(self) -> tuple[str, ...]:
        """Further options of sbatch."""
        return _words("--slurm", self.slurm)

    @property
    def adapters(self) -> tuple[str, ...]:
        """Resources that are devices of plugins."""
        return tuple(name for name in self.resources if not _STANDARD.fullmatch(name))


def _words(option: str, text: str) -> tuple[str, ...]:
    """Words of a shell command, without line breaks."""
    check_name(option, text)
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise InputError(f"{option} {text}", f"cannot be parsed: {error}", "write words as for a shell") from None


@frozen
class Job:
    """A job: the command of ``written`` runs on each of ``nodes``, in a folder that holds its files.

    The command gets ``MASTER_ADDR``, ``MASTER_PORT``, ``NNODES`` and ``NODE_RANK`` in its environment, and the user's variables.
    ``restarts`` is the number of times that a failed training starts again, on all nodes together where the kind of job can.
    """

    name: str
    written: ExportedFiles
    nodes: int
    devices_per_node: int
    kind: str
    restarts: int
    options: JobOptions


def job(plan: Plan, written: ExportedFiles, options: JobOptions) -> Job:
    """The job of an exported plan, with the user's files and arguments.

    Raises:
        InputError: a file has the name of an exported one.
    """
    exported_names = {file.name for file in written.files}
    if duplicate := next((file.name for file in options.files if file.name in exported_names), ""):
        raise InputError(f"--file {duplicate}", "is the name of an exported file", "name it otherwise")
    command = (*written.command, *_words("--arguments", options.arguments))
    return Job(
        name=f"strategist-{re.sub('[^a-z0-9]', '-', plan.id.lower())}",
        written=replace(written, files=(*written.files, *options.files), command=command),
        nodes=plan.cluster.nodes, devices_per_node=plan.cluster.gpus_per_node,
        kind=plan.cluster.device.kind, options=options,
        restarts=plan.candidate.options.max_restarts if options.restarts is None else options.restarts,
    )  # fmt: skip


def job_needs(job: Job, kind: str) -> tuple[str, ...]:
    """What a job of this kind lacks where the user's options leave it to the cluster."""
    options = job.options
    if kind == "slurm":
        stated = any(re.match(r"--time(=|$)|-t", word) for word in options.slurm_words)
        need = "time limit: --slurm=--time=HOURS:00:00; without it that of the partition ends the job"
    elif kind == "hosts":
        stated, start = "PATH" in options.environment, next(file.name for file in job.written.files if file.runs)
        need = f"programs: --env PATH=FOLDERS, unless the remote shell finds those of {start} without a login"
    else:
        folders = [f"{folder.rstrip('/')}/" for folder in options.volumes.values()]
        stated = any(f"{options.workdir}/".startswith(folder) for folder in folders)
        need = "storage: --volume CLAIM=FOLDER --workdir FOLDER/NAME; without, the working folder goes with its pod"
    return () if stated else (need,)


def missing(job: Job) -> tuple[str, ...]:
    """Files that the command runs, that the job does not contain, and whose folder no variable names."""
    names = {file.name for file in job.written.files}
    if job.options.environment.get(job.written.user_folder):
        return ()
    return tuple(name for name in job.written.user_files if name not in names)
