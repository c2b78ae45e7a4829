"""Kubernetes' own schemas and Kubeflow's own models read manifests: ``kubernetes.py FILE...`` prints the kinds of each.

Kubeflow's models ignore unknown keys, so a manifest must survive a round trip through them unchanged. KubeRay has no models in
Python: its manifests may have the fields of its API reference, and their pods follow Kubernetes' schema.
"""

import copy
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import kubernetes_validate
import yaml
from kubeflow.training.api_client import ApiClient
from kubeflow_trainer_api.models import JobsetV1alpha2JobSet, TrainerV1alpha1TrainJob

KUBERNETES = "1.34"
GROUP = {"rayStartParams": dict, "template": dict}
RAY_CLUSTER = {
    "rayVersion": str,
    "enableInTreeAutoscaling": bool,
    "headGroupSpec": {**GROUP, "serviceType": str},
    "workerGroupSpecs": [{**GROUP, "groupName": str, "replicas": int, "minReplicas": int, "maxReplicas": int, "numOfHosts": int}],
}
RAY_JOB = {
    "entrypoint": str,
    "runtimeEnvYAML": str,
    "backoffLimit": int,
    "submissionMode": str,
    "activeDeadlineSeconds": int,
    "shutdownAfterJobFinishes": bool,
    "ttlSecondsAfterFinished": int,
    "rayClusterSpec": RAY_CLUSTER,
}
"""Of github.com/ray-project/kuberay, docs/reference/api.md: RayJobSpec, RayClusterSpec, HeadGroupSpec and WorkerGroupSpec."""

MODELS = {"JobSet": JobsetV1alpha2JobSet, "TrainJob": TrainerV1alpha1TrainJob}


def checked(document: dict) -> str:
    kind = document["kind"]
    if kind in MODELS:
        again = MODELS[kind].from_dict(document).to_dict()
    elif kind == "PyTorchJob":
        again = pytorch_job(document)
    elif kind in ("RayJob", "RayCluster"):
        again = by_kuberay(document)
    else:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
        again = document
    assert again == document, f"{kind} changed in the round trip: {json.dumps(again)}\n{json.dumps(document)}"
    return kind


def pytorch_job(document: dict) -> dict:
    """Round trip through Kubeflow's models; pods are checked by Kubernetes' schema, since Kubeflow's models are of an older
    client.
    """
    outside = copy.deepcopy(document)
    templates = {name: replica.pop("template") for name, replica in outside["spec"]["pytorchReplicaSpecs"].items()}
    for template in templates.values():
        check_pod(template)
    client = ApiClient()
    answer = SimpleNamespace(data=json.dumps(outside))  # the client reads a server's response
    again = client.sanitize_for_serialization(client.deserialize(answer, "KubeflowOrgV1PyTorchJob"))
    for name, template in templates.items():
        again["spec"]["pytorchReplicaSpecs"][name]["template"] = template
    return again


def check_pod(template: dict) -> None:
    pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "pod"}, "template": template}
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)


def by_kuberay(document: dict) -> dict:
    """The part of the document that the reference of ray.io/v1 names, with its types."""
    fields = RAY_JOB if document["kind"] == "RayJob" else RAY_CLUSTER
    assert document["apiVersion"] == "ray.io/v1"
    spec = documented(document["spec"], fields)
    cluster = spec["rayClusterSpec"] if document["kind"] == "RayJob" else spec
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        check_pod(group["template"])
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
    return {**{key: document[key] for key in ("apiVersion", "kind", "metadata")}, "spec": spec}


def documented(value: object, fields: object) -> object:
    """The part of a value that the fields allow: by name, a list of one type, a type, or anything."""
    if isinstance(fields, dict):
        return {key: documented(item, fields[key]) for key, item in value.items() if key in fields}
    if isinstance(fields, list):
        return [documented(item, fields[0]) for item in value]
    assert isinstance(value, fields), f"{value} is no {fields}"
    return value


if __name__ == "__main__":
    found = [[checked(document) for document in yaml.safe_load_all(Path(name).read_text())] for name in sys.argv[1:]]
    print(json.dumps(found))
