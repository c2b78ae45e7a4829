"""Pods that Kubernetes and its operators create from a manifest, each with its environment.

A stand-in for ``kubectl apply``, with exactly what each controller adds to a container:

- Job, ``completionMode: Indexed`` (kubernetes.io, Job): pod I is called ``JOB-I.SUBDOMAIN`` and finds ``JOB_COMPLETION_INDEX``.
- JobSet v1alpha2 (jobset.sigs.k8s.io): ``JOBSET-REPLICATEDJOB-N-I.SUBDOMAIN``, of Indexed Jobs.
- PyTorchJob v1 (kubeflow/training-operator, pkg/controller.v1/pytorch/envvar.go and master.go): master 0, then workers;
  ``MASTER_ADDR`` is the master's name, ``MASTER_PORT`` 23456, ``WORLD_SIZE`` and ``RANK`` count pods; later releases add the same
  for torchrun, under names that begin with ``PET_``.
- TrainJob v1alpha1 (kubeflow/trainer, pkg/runtime/framework/plugins/torch/torch.go): a JobSet of the runtime ``torch-distributed``,
  whose container ``node`` finds ``PET_NNODES``, ``PET_NPROC_PER_NODE``, ``PET_NODE_RANK`` and ``PET_MASTER_ADDR``.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Manifest = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod's only container: ``name`` is its host name, ``mounts`` are folders with their volumes."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str]
    mounts: dict[str, Manifest]

    def words(self, folder: Path, configs: dict[str, dict[str, str]]) -> list[str]:
        """The command, with mounted folders replaced by folders of this machine, filled from ConfigMaps.

        Folders of ConfigMaps are read-only, as in a pod.
        """
        found = list(self.command)
        for place, volume in self.mounts.items():
            if not place.startswith("/dev/"):
                real = folder / self.name / place.strip("/").replace("/", "-")
                real.mkdir(parents=True)
                if "configMap" in volume:
                    for name, text in configs[volume["configMap"]["name"]].items():
                        (real / name).write_text(text)
                        (real / name).chmod(0o444)
                    real.chmod(0o555)
                found = [_replaced(word, place, str(real)) for word in found]
        return found


def _replaced(word: str, place: str, real: str) -> str:
    """A word with one folder in place of another; quoted within a script."""
    return re.sub(rf"(?<![\w/]){re.escape(place)}\b", lambda _: shlex.quote(real) if " " in word else real, word)


def configs(documents: Sequence[Manifest]) -> dict[str, dict[str, str]]:
    """Data of all ConfigMaps, by name."""
    return {item["metadata"]["name"]: item["data"] for item in documents if item["kind"] == "ConfigMap"}


def pods(documents: Sequence[Manifest]) -> list[Pod]:
    """The pods of the job among the documents."""
    job = documents[-1]
    found = list(KINDS[job["kind"]](job))
    subdomains = {item["metadata"]["name"] for item in documents if item["kind"] == "Service"}
    if job["kind"] == "Job":  # no controller creates its service
        assert job["spec"]["template"]["spec"]["subdomain"] in subdomains
    return found


def _pod(name: str, spec: Manifest, added: dict[str, str]) -> Pod:
    [container] = spec["containers"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    own = {item["name"]: item["value"] for item in container.get("env", [])}
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
    return Pod(name=name, command=tuple(container["command"]), environment={**own, **added}, mounts=mounts)


def _indexed(name: str, subdomain: str, spec: Manifest) -> Iterator[Pod]:
    assert spec["completionMode"] == "Indexed"
    assert spec["parallelism"] == spec["completions"], "all pods run at once"
    for index in range(spec["completions"]):
        yield _pod(f"{name}-{index}.{subdomain}", spec["template"]["spec"], {"JOB_COMPLETION_INDEX": str(index)})


def _job(job: Manifest) -> Iterator[Pod]:
    yield from _indexed(job["metadata"]["name"], job["spec"]["template"]["spec"]["subdomain"], job["spec"])


def _job_set(job: Manifest) -> Iterator[Pod]:
    name, spec = job["metadata"]["name"], job["spec"]
    assert spec["network"]["enableDNSHostnames"]
    for part in spec["replicatedJobs"]:
        for number in range(part["replicas"]):
            yield from _indexed(f"{name}-{part['name']}-{number}", spec["network"]["subdomain"], part["template"]["spec"])


def _pytorch_job(job: Manifest) -> Iterator[Pod]:
    name, replicas = job["metadata"]["name"], job["spec"]["pytorchReplicaSpecs"]
    order = [(role, index) for role in ("Master", "Worker") for index in range(replicas.get(role, {}).get("replicas", 0))]
    for rank, (role, index) in enumerate(order):
        spec = replicas[role]["template"]["spec"]
        assert spec["containers"][0]["name"] == "pytorch", "the operator looks for a container of this name"
        rendezvous = {"MASTER_ADDR": f"{name}-master-0", "MASTER_PORT": "23456"}
        added = {**rendezvous, "WORLD_SIZE": str(len(order)), "RANK": str(rank), "PYTHONUNBUFFERED": "1"}
        added |= {f"PET_{key}": value for key, value in rendezvous.items()}
        yield _pod(f"{name}-{role.lower()}-{index}", spec, {**added, "PET_NODE_RANK": str(rank), "PET_NNODES": str(len(order))})


def _train_job(job: Manifest) -> Iterator[Pod]:
    name, trainer = job["metadata"]["name"], job["spec"]["trainer"]
    [patch] = job["spec"]["runtimePatches"]
    [part] = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    patched = part["template"]["spec"]["template"]["spec"]
    [container] = patched["containers"]
    spec = {**patched, "containers": [{**container, "command": trainer["command"], "env": trainer["env"]}]}
    for rank in range(trainer["numNodes"]):
        added = {
            "PET_NNODES": str(trainer["numNodes"]), "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
            "PET_NODE_RANK": str(rank), "PET_MASTER_ADDR": f"{name}-node-0-0.{name}", "PET_MASTER_PORT": "29400",
            "JOB_COMPLETION_INDEX": str(rank),
        }  # fmt: skip
        yield _pod(f"{name}-node-0-{rank}.{name}", spec, added)


KINDS = {"Job": _job, "JobSet": _job_set, "PyTorchJob": _pytorch_job, "TrainJob": _train_job}
