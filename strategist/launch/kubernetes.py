"""Kubernetes manifests: an indexed Job, a JobSet, Kubeflow's PyTorchJob v1 or TrainJob v2; each with the exported files as a
ConfigMap, shared memory for NCCL, and a restart policy.

Sources: kubernetes.io/docs/concepts/workloads/controllers/job (Indexed), jobset.sigs.k8s.io (v1alpha2),
kubeflow.org/docs/components/trainer (TrainJob v1alpha1) and .../legacy-v1/user-guides/pytorch (PyTorchJob v1).
"""

import shlex
from collections.abc import Callable, Mapping
from typing import Any

from strategist.errors import InputError
from strategist.formats.commented_text import yaml_text
from strategist.formats.format import File
from strategist.launch.job import PORT, Job

Manifest = dict[str, Any]
FOLDER, WORK = "/plan", "/work"
"""Folder of the exported files in a container (read-only), and the working folder unless ``--workdir`` names another."""

PLAN_MOUNT: Manifest = {"name": "plan", "mountPath": FOLDER, "readOnly": True}
MEMORY_MOUNT: Manifest = {"name": "memory", "mountPath": "/dev/shm"}
MEMORY_VOLUME: Manifest = {"name": "memory", "emptyDir": {"medium": "Memory"}}
WORK_MOUNT: Manifest = {"name": "work", "mountPath": WORK}
WORK_VOLUME: Manifest = {"name": "work", "emptyDir": {}}
MAX_CONFIG_MAP_BYTES = 2**20
"""Size limit of an object in etcd."""

RANK_NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
"""Variables of a single rank that operators set for a container; they are unset because launchers in it would take them for
their own.
"""

GPU = "nvidia.com/gpu"
CONTAINER = "train"
IMAGE = "give the container's image, e.g. --image pytorch/pytorch:2.13.0-cuda12.8-cudnn9-runtime"


def files(job: Job, kind: str) -> tuple[File, ...]:
    """The manifests of one kind, for ``kubectl apply -f``.

    Raises:
        InputError: no image is named.
    """
    if not job.options.image:
        raise InputError("--image", "is missing", IMAGE)
    documents = [files_as_config_map(job), *KINDS[kind](job)]
    return (File(name=f"{kind}.yaml", text="---\n".join(map(yaml_text, documents))),)


def _job(job: Job) -> list[Manifest]:
    """An indexed Job, with a headless service by which its pods resolve each other."""
    service = {
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(job),
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": job.name}},
    }  # fmt: skip
    pod = _pod(job, f"{job.name}-0.{job.name}", "$JOB_COMPLETION_INDEX")
    spec = {**_indexed(job), "template": {"metadata": {"labels": {"app": job.name}}, "spec": {**pod, "subdomain": job.name}}}
    return [service, {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata(job), "spec": spec}]


def _job_set(job: Job) -> list[Manifest]:
    """A JobSet: when a node fails, all of them start again together, because ranks cannot rejoin those that are left."""
    pod = _pod(job, f"{job.name}-node-0-0.{job.name}", "$JOB_COMPLETION_INDEX")
    template = {"spec": {**_indexed(job), "backoffLimit": 0, "template": {"spec": pod}}}
    spec = {
        "network": {"enableDNSHostnames": True, "subdomain": job.name},
        "failurePolicy": {"maxRestarts": job.restarts},
        "replicatedJobs": [{"name": "node", "replicas": 1, "template": template}],
    }
    return [{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata(job), "spec": spec}]


def _pytorch_job(job: Job) -> list[Manifest]:
    """A PyTorchJob; its operator sets the master's address. When it fails, pods that still run would keep their GPUs."""
    pod = {"spec": _pod(job, "$MASTER_ADDR", "$RANK", policy=None)}
    policy = "OnFailure" if job.restarts else "Never"
    replicas = {"Master": {"replicas": 1, "restartPolicy": policy, "template": pod}}
    if job.nodes > 1:
        replicas["Worker"] = {"replicas": job.nodes - 1, "restartPolicy": policy, "template": pod}
    run_policy = {"backoffLimit": job.restarts, "cleanPodPolicy": "Running"}
    spec = {"runPolicy": run_policy, "pytorchReplicaSpecs": replicas}
    return [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata(job), "spec": spec}]


def _train_job(job: Job) -> list[Manifest]:
    """A TrainJob; its runtime ``torch-distributed`` sets the master's address, in torchrun's variables."""
    pod = _pod(job, "$PET_MASTER_ADDR", "$PET_NODE_RANK")
    [container] = pod["containers"]
    trainer = {
        "image": job.options.image, "command": container["command"], "numNodes": job.nodes, "numProcPerNode": job.devices_per_node,
        "env": container["env"],
    }  # fmt: skip
    if "resources" in container:
        trainer["resourcesPerNode"] = container["resources"]
    patched = {key: container[key] for key in ("volumeMounts", "securityContext") if key in container}
    pod_patch = {**placement(job), "volumes": pod["volumes"], "containers": [{"name": "node", **patched}]}
    node_patch = {"name": "node", "template": {"spec": {"template": {"spec": pod_patch}}}}
    patch = {"manager": "strategist.dev/export", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [node_patch]}}}}
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer, "runtimePatches": [patch]}
    return [{"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata(job), "spec": spec}]


KINDS: Mapping[str, Callable[[Job], list[Manifest]]] = {
    "job": _job, "jobset": _job_set, "pytorchjob": _pytorch_job, "trainjob": _train_job,
}  # fmt: skip


def metadata(job: Job) -> Manifest:
    """The name that all manifests of a job share."""
    return {"name": job.name}


def _indexed(job: Job) -> Manifest:
    """Fields of a Job whose pods run in parallel, each with an index. A pod whose node was removed, as spot nodes are, does not
    count as failed.
    """
    return {
        "completionMode": "Indexed", "completions": job.nodes, "parallelism": job.nodes, "backoffLimit": job.restarts * job.nodes,
        "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]},
    }  # fmt: skip


def _pod(job: Job, master: str, number: str, policy: str | None = "Never") -> Manifest:
    """The pod of one node. ``master`` and ``number`` are shell words."""
    container: Manifest = {
        "name": CONTAINER if policy else "pytorch",
        "image": job.options.image,
        "command": ["bash", "-c", _script(job, master, number)],
        "env": [{"name": "NNODES", "value": str(job.nodes)}, *variables(job)],
        "volumeMounts": [PLAN_MOUNT, MEMORY_MOUNT, WORK_MOUNT, *claim_mounts(job)],
    }
    container |= resource_limits(job)
    volumes = [plan_volume(job), MEMORY_VOLUME, WORK_VOLUME, *claims(job)]
    return {**({"restartPolicy": policy} if policy else {}), **placement(job), "containers": [container], "volumes": volumes}


def placement(job: Job) -> Manifest:
    """Which nodes a pod of ranks may run on; nodes with GPUs are often tainted by the name of the resource."""
    tainted = [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}] if job.kind == "cuda" else []
    labels = dict(job.options.node_labels)
    return {**({"nodeSelector": labels} if labels else {}), **({"tolerations": tainted} if tainted else {})}


def variables(job: Job) -> list[Manifest]:
    """The user's variables of a container; those with secrets name where Kubernetes keeps them."""
    secrets = {name: key_path.split("/") for name, key_path in job.options.secrets.items()}
    plain = [{"name": name, "value": value} for name, value in job.options.environment.items()]
    secret_variables = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}} for name, (secret, key) in secrets.items()
    ]
    return [*plain, *secret_variables]


def _script(job: Job, master: str, number: str) -> str:
    """Shell script of the container: sets the rendezvous variables, copies the files to a writable folder, and starts the ranks."""
    exports = (
        f'export MASTER_ADDR="{master}" MASTER_PORT="${{MASTER_PORT:-{PORT}}}" NODE_RANK="{number}"; unset {" ".join(RANK_NAMES)}'
    )
    folder = shlex.quote(job.options.workdir or WORK)
    copy = f'mkdir -p -- {folder} && cd -- {folder} && new=$(mktemp -d .XXXXXX) && cp -L {FOLDER}/* "$new" && mv -f -- "$new"/* .'
    return f'{exports}; {copy} && rmdir -- "$new" && exec {shlex.join(job.written.command)}'


def resource_limits(job: Job) -> Manifest:
    """Resource limits of a node's container. Adapters for RDMA need locked memory."""
    limits = {**({GPU: str(job.devices_per_node)} if job.kind == "cuda" else {}), **job.options.resources}
    pinned = {"securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}} if job.options.adapters else {}
    return {**({"resources": {"limits": limits}} if limits else {}), **pinned}


def claim_mounts(job: Job) -> list[Manifest]:
    """Mounts of the user's volumes."""
    return [{"name": claim, "mountPath": folder} for claim, folder in job.options.volumes.items()]


def claims(job: Job) -> list[Manifest]:
    """The user's volumes."""
    return [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in job.options.volumes]


def plan_volume(job: Job) -> Manifest:
    """The volume with the exported files."""
    return {"name": "plan", "configMap": {"name": job.name}}


def files_as_config_map(job: Job) -> Manifest:
    """The ConfigMap that pods mount as ``FOLDER``.

    Raises:
        InputError: the files are too large.
    """
    data = {file.name: file.text for file in job.written.files}
    if (size := sum(len(text.encode()) for text in data.values())) > MAX_CONFIG_MAP_BYTES:
        law = f"and the exported files have {size:,} bytes, and a ConfigMap holds {MAX_CONFIG_MAP_BYTES:,}"
        raise InputError("--file", law, "put the larger ones into the image or on a volume, and name their folder by --workdir")
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(job), "data": data}
