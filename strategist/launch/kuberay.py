"""Manifests for KubeRay: a RayJob that trains an exported plan; a RayCluster of a plan's size, for the trials of ``--engine ray``.

Source: ray-project.github.io/kuberay/reference/api (ray.io/v1) and docs.ray.io, KubeRay's user guides.
"""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from strategist.errors import InputError
from strategist.executors import processes
from strategist.formats.commented_text import yaml_text
from strategist.formats.format import File
from strategist.launch.job import Job
from strategist.launch.kubernetes import (
    FOLDER,
    MEMORY_MOUNT,
    MEMORY_VOLUME,
    PLAN_MOUNT,
    WORK,
    WORK_MOUNT,
    WORK_VOLUME,
    Manifest,
    claim_mounts,
    claims,
    files_as_config_map,
    metadata,
    placement,
    plan_volume,
    resource_limits,
    variables,
)

IMAGE = "give an image with Ray and torch, e.g. --image mine/ray-torch:2.60"
STARTER = Path(processes.__file__).with_name("ray_job.py")
"""The script that a RayJob runs."""


def files(job: Job, kind: str) -> tuple[File, ...]:
    """The files of the job; the last one is for ``kubectl apply -f``.

    Raises:
        InputError: no image is named.
    """
    if not job.options.image:
        raise InputError("--image", "is missing", IMAGE)
    return KINDS[kind](job)


def _ray_job(job: Job) -> tuple[File, ...]:
    """A RayJob; its ConfigMap holds the exported files and the script that starts their command on each node."""
    starter = File(name=STARTER.name, text=STARTER.read_text(encoding="utf-8"))
    carried = files_as_config_map(replace(job, written=replace(job.written, files=(*job.written.files, starter))))
    spec = {
        "entrypoint": entrypoint(job),
        "shutdownAfterJobFinishes": True,
        "rayClusterSpec": _cluster_spec(job, carries=True),
    }
    manifest = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": metadata(job), "spec": spec}
    return (starter, File(name="rayjob.yaml", text="---\n".join(map(yaml_text, (carried, manifest)))))


def _ray_cluster(job: Job) -> tuple[File, ...]:
    manifest = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": metadata(job),
        "spec": _cluster_spec(job, carries=False),
    }
    return (File(name="raycluster.yaml", text=yaml_text(manifest)),)


KINDS: Mapping[str, Callable[[Job], tuple[File, ...]]] = {"rayjob": _ray_job, "raycluster": _ray_cluster}


def entrypoint(job: Job) -> str:
    """Command of the RayJob's driver (see ``executors/ray_job.py``). Ray would drop log lines that differ only in numbers."""
    resource = "GPU" if job.kind == "cuda" else "CPU"
    starter_arguments = (str(job.nodes), resource, str(job.devices_per_node), str(job.restarts), job.options.workdir or WORK)
    return shlex.join(["env", "RAY_DEDUP_LOGS=0", "python", f"{FOLDER}/{STARTER.name}", *starter_arguments, *job.written.command])


def _cluster_spec(job: Job, *, carries: bool) -> Manifest:
    """A head node that runs no ranks, and a worker per node. Workers of a plan for CPUs declare their number; Ray counts GPUs
    itself, on the head also those that an image of CUDA shows to a container without a limit.
    """
    started = {} if job.kind == "cuda" else {"num-cpus": str(job.devices_per_node)}
    workers = {
        "groupName": "nodes", "replicas": job.nodes, "minReplicas": job.nodes, "maxReplicas": job.nodes, "rayStartParams": started,
        "template": {"spec": _pod(job, "ray-worker", carries=carries, ranks=True)},
    }  # fmt: skip
    head = {
        "rayStartParams": {"num-cpus": "0", "num-gpus": "0"},
        "template": {"spec": _pod(job, "ray-head", carries=carries, ranks=False)},
    }
    return {"headGroupSpec": head, "workerGroupSpecs": [workers]}


def _pod(job: Job, name: str, *, carries: bool, ranks: bool) -> Manifest:
    """A pod without command: KubeRay sets it."""
    container: Manifest = {
        "name": name,
        "image": job.options.image,
        "env": variables(job),
        "volumeMounts": [*([PLAN_MOUNT, WORK_MOUNT] if carries else []), MEMORY_MOUNT, *claim_mounts(job)],
    }
    if ranks:
        container |= resource_limits(job)
    volumes = [*([plan_volume(job), WORK_VOLUME] if carries else []), MEMORY_VOLUME, *claims(job)]
    return {**(placement(job) if ranks else {}), "containers": [container], "volumes": volumes}
