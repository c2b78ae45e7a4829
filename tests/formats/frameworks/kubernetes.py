"""Kubernetes' own schemas and Kubeflow's own models read manifests: ``kubernetes.py FILE...`` prints the kinds of each.

Kubeflow's models pass over unknown keys, so a manifest must come back from them as it was.
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
MODELS = {"JobSet": JobsetV1alpha2JobSet, "TrainJob": TrainerV1alpha1TrainJob}


def checked(document: dict) -> str:
    kind = document["kind"]
    if kind in MODELS:
        again = MODELS[kind].from_dict(document).to_dict()
    elif kind == "PyTorchJob":
        again = pytorch_job(document)
    else:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
        again = document
    assert again == document, f"{kind} comes back otherwise: {json.dumps(again)}\n{json.dumps(document)}"
    return kind


def pytorch_job(document: dict) -> dict:
    """Through Kubeflow's models; what a pod is, is Kubernetes' own, of which these know an older client's."""
    outside = copy.deepcopy(document)
    templates = {name: replica.pop("template") for name, replica in outside["spec"]["pytorchReplicaSpecs"].items()}
    for template in templates.values():
        pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "pod"}, "template": template}
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)
    client = ApiClient()
    answer = SimpleNamespace(data=json.dumps(outside))  # the client reads what a server answers
    again = client.sanitize_for_serialization(client.deserialize(answer, "KubeflowOrgV1PyTorchJob"))
    for name, template in templates.items():
        again["spec"]["pytorchReplicaSpecs"][name]["template"] = template
    return again


if __name__ == "__main__":
    found = [[checked(document) for document in yaml.safe_load_all(Path(name).read_text())] for name in sys.argv[1:]]
    print(json.dumps(found))
