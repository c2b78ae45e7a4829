"""Manifests are valid for Kubernetes and Kubeflow, and contain the exported files."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from formats.frameworks import parsed
from formats.plans import a_plan

from launch import starts
from strategist.contract.plan import Plan
from strategist.errors import InputError
from strategist.files import yaml_file
from strategist.formats.catalog import find_format
from strategist.launch import kuberay
from strategist.launch.catalog import JOBS, unused_options, with_job
from strategist.launch.job import JobOptions
from strategist.launch.kubernetes import KINDS

MORE: dict[str, Any] = {
    "volumes": {"datasets": "/data"},
    "environment": {"HF_HOME": "/data/hf"},
    "secrets": {"HF_TOKEN": "hub/token"},
    "resources": {"rdma/hca_shared_devices_a": "8", "memory": "900Gi"},
    "node_labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
}
IMAGE = "pytorch/pytorch:2.13.0-cuda12.8-cudnn9-runtime"


@pytest.fixture(scope="module")
def large() -> Plan:
    """A plan of several nodes."""
    return starts.large("pytorch")


def manifest(plan: Plan, kind: str, **more: Any) -> str:
    return with_job(plan, find_format("pytorch").write(plan, {}), kind, JobOptions(image=IMAGE, **more)).files[-1].text


@pytest.mark.full
def test_every_kind_of_manifest_is_valid_for_its_api_models(large: Plan, tmp_path: Path) -> None:
    alone = a_plan("pytorch", lambda plan: plan.cluster.devices == 1)
    files = []
    for plan in (large, alone):
        for kind in (*KINDS, *kuberay.KINDS):
            files.append(tmp_path / f"{kind}-{plan.id}.yaml")
            files[-1].write_text(manifest(plan, kind, **MORE))
    found = parsed("kubernetes", list(map(str, files)))
    wanted = [
        ["ConfigMap", "Service", "Job"], ["ConfigMap", "JobSet"], ["ConfigMap", "PyTorchJob"], ["ConfigMap", "TrainJob"],
        ["ConfigMap", "RayJob"], ["RayCluster"],
    ]  # fmt: skip
    assert found == 2 * wanted


@pytest.mark.parametrize("kind", KINDS)
def test_a_manifest_contains_the_exported_files_and_devices(kind: str, large: Plan) -> None:
    config, *_, last = yaml.safe_load_all(manifest(large, kind))
    written = find_format("pytorch").write(large, {})
    assert config["data"] == {file.name: file.text for file in written.files}
    text = str(last)
    assert "nvidia.com/gpu" in text
    assert f"'{large.cluster.gpus_per_node}'" in text or f": {large.cluster.gpus_per_node}" in text
    assert "/dev/shm" in text


def find(data: object, key: str) -> list:
    """The first list under a key, at any depth."""
    if isinstance(data, dict):
        if isinstance(data.get(key), list):
            return data[key]
        return next((found for value in data.values() if (found := find(value, key))), [])
    return next((found for value in data if (found := find(value, key))), []) if isinstance(data, list) else []


def test_hostile_model_names_do_not_change_the_manifest(large: Plan) -> None:
    odd = replace(large, model=replace(large.model, name="x: {y}--- kind: Pod # \"'"))
    for kind in KINDS:
        text, plain = manifest(odd, kind), manifest(large, kind)
        assert [item["kind"] for item in yaml.safe_load_all(text)] == [item["kind"] for item in yaml.safe_load_all(plain)]
        for part in re.split(r"^---\n", text, flags=re.MULTILINE):
            yaml_file.parse(part)


@pytest.mark.parametrize(
    ("job", "image", "message"),
    [
        ("job", "", "--image: is missing"),
        ("job", "x y", "is not an image name"),
        ("rayjob", "", "--image: is missing; give an image with Ray"),
        ("cron", IMAGE, "--job cron: is not known"),
        ("", IMAGE, "--job : is missing"),
    ],
)
def test_wrong_job_options_are_refused(job: str, image: str, message: str, large: Plan) -> None:
    with pytest.raises(InputError, match=message):
        with_job(large, find_format("pytorch").write(large, {}), job, JobOptions(image=image))
    assert set(KINDS) < set(JOBS)


@pytest.mark.parametrize("kind", KINDS)
def test_volume_claims_and_variables_are_in_every_pod(kind: str, large: Plan) -> None:
    text = manifest(large, kind, **MORE)
    last = list(yaml.safe_load_all(text))[-1]
    assert {"name": "datasets", "mountPath": "/data"} in find(last, "volumeMounts")
    assert {"name": "datasets", "persistentVolumeClaim": {"claimName": "datasets"}} in find(last, "volumes")
    assert {"name": "HF_HOME", "value": "/data/hf"} in find(last, "env")
    token = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    assert token in find(last, "env")


@pytest.mark.parametrize(("name", "variable"), [("megatron-lm", "MEGATRON_LM"), ("nanotron", "NANOTRON")])
@pytest.mark.parametrize("kind", ["pytorchjob", "rayjob"])
def test_a_job_finds_the_checkout_that_a_variable_names(name: str, variable: str, kind: str) -> None:
    """Instead of a file or a working folder: the start script takes the program from there."""
    large = starts.large(name)
    options = JobOptions(image=IMAGE, environment={variable: "/opt/checkout"})
    last = list(yaml.safe_load_all(with_job(large, find_format(name).write(large, {}), kind, options).files[-1].text))[-1]
    assert {"name": variable, "value": "/opt/checkout"} in find(last, "env")
    with pytest.raises(InputError, match=f"or --env {variable}=FOLDER"):
        with_job(large, find_format(name).write(large, {}), kind, JobOptions(image=IMAGE, environment={variable: ""}))


@pytest.mark.parametrize("kind", KINDS)
def test_fabric_adapters_are_requested_with_locked_memory(kind: str, large: Plan) -> None:
    text = manifest(large, kind, **MORE)
    assert "rdma/hca_shared_devices_a: '8'" in text or 'rdma/hca_shared_devices_a: "8"' in text
    assert find(list(yaml.safe_load_all(text))[-1], "add") == ["IPC_LOCK"]
    assert not find(list(yaml.safe_load_all(manifest(large, kind, resources={"memory": "900Gi"})))[-1], "add")


@pytest.mark.parametrize("kind", [*KINDS, "rayjob"])
def test_ranks_run_on_the_nodes_that_have_the_label_though_these_are_tainted(kind: str, large: Plan) -> None:
    last = list(yaml.safe_load_all(manifest(large, kind, **MORE)))[-1]
    assert find(last, "tolerations") == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert str(last).count("{'nvidia.com/gpu.product': 'NVIDIA-H100-80GB-HBM3'}") == str(last).count("tolerations") > 0


def test_a_failed_job_starts_all_nodes_again_or_frees_them(large: Plan) -> None:
    """Ranks cannot join those of other nodes that go on; the operator of PyTorchJob leaves pods that run unless the job says so."""
    again = replace(large, candidate=replace(large.candidate, options=replace(large.candidate.options, max_restarts=3)))
    policies = {kind: list(yaml.safe_load_all(manifest(again, kind)))[-1]["spec"] for kind in ("job", "jobset", "pytorchjob")}
    assert policies["job"]["backoffLimit"] == 3 * large.cluster.nodes
    assert policies["jobset"]["failurePolicy"] == {"maxRestarts": 3}
    assert policies["jobset"]["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] == 0
    assert policies["pytorchjob"]["runPolicy"] == {"backoffLimit": 3, "cleanPodPolicy": "Running"}
    asked = list(yaml.safe_load_all(manifest(again, "jobset", restarts=5)))[-1]
    assert asked["spec"]["failurePolicy"] == {"maxRestarts": 5}


def test_a_preempted_node_does_not_count_as_a_failure(large: Plan) -> None:
    last = list(yaml.safe_load_all(manifest(large, "job")))[-1]
    [rule] = last["spec"]["podFailurePolicy"]["rules"]
    assert rule == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"volumes": {"datasets": "data"}}, "--volume datasets=data: is not a claim"),
        ({"volumes": {"Data Sets": "/data"}}, "is not a claim and its folder"),
        ({"volumes": {"plan": "/data"}}, "are the job's own"),
        ({"environment": {"A B": "1"}}, "--env A B: is not a variable name"),
        ({"secrets": {"HF_TOKEN": "hub"}}, "--secret HF_TOKEN=hub: is not a variable and a Secret's key"),
        ({"environment": {"A": "1"}, "secrets": {"A": "b/c"}}, "is set by --env, too"),
        ({"resources": {"efa": "1"}}, "--resource efa=1: is not a resource"),
        ({"resources": {"rdma/hca": "many"}}, "--resource rdma/hca=many: is not a resource"),
        ({"node_labels": {"pool": "a b"}}, "--node-label pool=a b: is not a label and its value"),
        ({"restarts": -1}, "--restarts -1: is not a number of restarts; write a number from 0"),
        ({"arguments": "--steps '1"}, "--arguments --steps '1: cannot be parsed"),
    ],
)
def test_an_invalid_claim_or_variable_is_refused(more: dict[str, Any], words: str, large: Plan) -> None:
    with pytest.raises(InputError, match=words):
        manifest(large, "job", **more)


def test_options_that_a_kind_does_not_use_are_named() -> None:
    given = JobOptions(image="a:1", volumes={"datasets": "/data"}, hosts="a,b")
    assert unused_options("slurm", given) == ("image", "volumes", "hosts")
    assert unused_options("jobset", given) == ("hosts",)
