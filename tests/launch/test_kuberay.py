"""A RayJob's entry point trains an exported plan on a real Ray; a RayCluster has the plan's size."""

import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from formats.plans import deck
from ray_cluster import RayCluster, missing

from launch.starts import large
from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.options import Options
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.formats.pytorch import write
from strategist.launch.catalog import with_job
from strategist.launch.job import JobOptions
from strategist.planning.planner import price_candidate
from strategist.profiles.situation import situation

IMAGE = "rayproject/ray:2.60.0"


@pytest.mark.torch
@pytest.mark.timeout(240)
@pytest.mark.full
def test_the_entry_point_trains_an_exported_plan_on_two_nodes(tmp_path: Path) -> None:
    if why := missing():
        pytest.skip(why)
    asked = situation(Request(model="tiny", gpus="2x1xcpu", workload=Workload(seq_len=64, global_batch=8, precision="fp32")))
    candidate = Candidate(layout=Layout(dp_shard=2), knobs=Knobs(), options=Options(max_restarts=1))
    plan = price_candidate(asked, candidate, deck=deck())
    written = with_job(plan, write(plan, {}), "rayjob", JobOptions(image=IMAGE, workdir=str(tmp_path / "work")))
    config, job = yaml.safe_load_all(written.files[-1].text)
    for name, text in config["data"].items():  # as they are mounted in a pod
        (tmp_path / name).write_text(text)
    entry = shlex.split(job["spec"]["entrypoint"].replace("/plan/", f"{tmp_path}/"))
    with RayCluster.started() as ray:
        environment = {**os.environ, **ray.environment, "HOME": str(tmp_path)}
        done = subprocess.run([*entry, "--steps", "3"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    output = done.stdout + done.stderr
    assert all(f"step {step} " in output for step in (1, 2, 3)), output


def test_a_cluster_has_a_worker_for_each_node_of_the_plan() -> None:
    plan = large("pytorch")
    for kind, in_spec in (("rayjob", lambda spec: spec["rayClusterSpec"]), ("raycluster", lambda spec: spec)):
        *_, last = yaml.safe_load_all(with_job(plan, write(plan, {}), kind, JobOptions(image=IMAGE)).files[-1].text)
        spec = in_spec(last["spec"])
        [workers] = spec["workerGroupSpecs"]
        [container] = workers["template"]["spec"]["containers"]
        assert workers["replicas"] == workers["minReplicas"] == workers["maxReplicas"] == plan.cluster.nodes
        assert container["resources"]["limits"] == {"nvidia.com/gpu": str(plan.cluster.gpus_per_node)}
        for pod in (workers["template"]["spec"], spec["headGroupSpec"]["template"]["spec"]):
            assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == {
                volume["name"] for volume in pod["volumes"]
            }
        assert "resources" not in spec["headGroupSpec"]["template"]["spec"]["containers"][0]
        assert spec["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0", "num-gpus": "0"}
        assert "tolerations" in workers["template"]["spec"]
        assert "tolerations" not in spec["headGroupSpec"]["template"]["spec"]


def test_a_cpu_plan_limits_the_cpus_of_ray_workers() -> None:
    plan = large("pytorch")
    device = replace(plan.cluster.device, kind="cpu")
    processors = replace(plan, cluster=replace(plan.cluster, device=device))
    text = with_job(processors, write(processors, {}), "raycluster", JobOptions(image=IMAGE)).files[-1].text
    [workers] = yaml.safe_load(text)["spec"]["workerGroupSpecs"]
    assert workers["rayStartParams"] == {"num-cpus": str(plan.cluster.gpus_per_node)}
    assert "nvidia.com" not in text
