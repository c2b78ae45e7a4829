"""Every technique can be simulated or is refused in one line; results equal those of real runs if these exist."""

from dataclasses import replace
from functools import cache

import pytest

from strategist.contract import codec
from strategist.contract.knobs import Knobs
from strategist.contract.layout import Layout
from strategist.contract.model import MoEShape
from strategist.contract.options import Options
from strategist.contract.rank_observation import Moment
from strategist.contract.simulation import SimulatedRank

from ..cases import cases
from ..launch import forked, records, trial_arguments
from ..plans import TINY, WORKLOAD, plan

MODEL = replace(TINY, layers=4, hidden_size=128, head_size=32, ffn_size=352, vocab_size=512)
EXPERTS = replace(MODEL, layers=2, moe=MoEShape(experts=4, experts_per_token=4, expert_ffn_size=64))
"""Every token visits every expert, so that routing in a real run is balanced like in a simulated one."""

LARGE = replace(WORKLOAD, seq_len=128, global_batch=4)
REPLICAS, EP = Layout(dp_replicate=2), Layout(dp_shard=2, ep=2)
ON_GPUS = {"model": replace(MODEL, layers=2), "workload": replace(LARGE, seq_len=512, precision="bf16"), "kind": "cuda"}

REAL = {
    "ddp": plan(
        layout=REPLICAS,
        knobs=Knobs(micro_batch=1, comm_hook="bf16", no_sync=True),
        options=Options(bucket_cap_mb=1),
        model=MODEL,
        workload=LARGE,
    ),
    "ddp views": plan(
        layout=REPLICAS, knobs=Knobs(micro_batch=1), options=Options(gradient_as_bucket_view=True), model=MODEL, workload=LARGE
    ),
    "experts": plan(layout=EP, knobs=Knobs(micro_batch=2), model=EXPERTS, workload=LARGE),
}
LONG = {
    "ddp": plan(layout=REPLICAS, knobs=Knobs(micro_batch=1), workload=replace(WORKLOAD, global_batch=16)),
    "experts": plan(layout=EP, knobs=Knobs(micro_batch=4), model=replace(EXPERTS, layers=8)),
}
OFFLOADED = {
    "none": plan(layout=Layout(dp_shard=2), knobs=Knobs(micro_batch=2), **ON_GPUS),
    "all": plan(layout=Layout(dp_shard=2), knobs=Knobs(micro_batch=2, offload="all"), **ON_GPUS),
    "optimizer": plan(layout=Layout(dp_shard=2), knobs=Knobs(micro_batch=2, offload="optimizer"), **ON_GPUS),
    "in backward": plan(
        layout=Layout(dp_shard=2), knobs=Knobs(micro_batch=2, offload="optimizer", optimizer_in_backward=True), **ON_GPUS
    ),
    "activations": plan(layout=Layout(dp_shard=2), knobs=Knobs(micro_batch=2, activation_offload=True), **ON_GPUS),
}
SHORT = {
    "ddp": plan(
        layout=REPLICAS, knobs=Knobs(micro_batch=1), options=Options(optimizer_kernel="foreach"), model=MODEL,
        workload=replace(LARGE, seq_len=8, global_batch=2),
    )
}  # fmt: skip
"""Its update needs more memory than its passes."""

SUPPORTED = (
    "qlora fsdp", "in backward fsdp", "float8 tensorwise fsdp", "muon pp", "fp16 pp", "cp flex", "cp alltoall none",
    "packed cp per document", "experts pp ep 2 interleaved", "experts ep 2 tp 2 etp 2 sequence", "ddp hook powersgd",
    "models fsdp latent", "host updates tp", "compile fsdp budget", "experts streamed",
)  # fmt: skip
REFUSED = "experts streamed"

pytestmark = [pytest.mark.torch, pytest.mark.timeout(660)]


@pytest.fixture(scope="module")
def simulate(tmp_path_factory):
    """``simulate(kind, name)`` simulates rank 1 of the plan and returns exit code, record and errors."""
    known = dict(cases())
    eight_bits = replace(REAL["ddp views"], workload=replace(LARGE, optimizer="adamw8bit")).identified()
    supported = {name: known[name] for name in SUPPORTED} | {"adamw8bit": eight_bits}
    plans = {"real": REAL, "supported": supported, "offloaded": OFFLOADED, "short": SHORT, "long": LONG, "long whole": LONG}

    @cache
    def simulated(kind, name):
        folder = tmp_path_factory.mktemp(kind.replace(" ", "-"))
        codec.save(plans[kind][name], folder / "plan.json")
        out = folder / "simulated.json"
        arguments = [str(folder / "plan.json"), "--rank", "1", "--out", str(out), *(["--whole"] if "whole" in kind else [])]
        done = forked(1, ["strategist_runtime.simulate", *arguments])
        return done.returncode, codec.load(SimulatedRank, out) if out.exists() else None, done.stderr

    return simulated


@pytest.mark.parametrize("name", ["ddp", pytest.param("ddp views", marks=pytest.mark.full), "experts"])
def test_simulated_memory_and_traffic_equal_a_real_run(name, simulate, tmp_path):
    done = forked(2, trial_arguments(REAL[name], tmp_path))
    assert done.returncode == 0, done.stderr
    real, (_, found, errors) = records(tmp_path)[1], simulate("real", name)
    assert found is not None, errors
    assert found.peak_memory_bytes == pytest.approx(real.peak_memory_bytes, rel=2e-3)
    assert found.moment == real.peak_moment
    assert traffic_of(found) == traffic_of(real)


@pytest.mark.parametrize("name", ["ddp", pytest.param("experts", marks=pytest.mark.full)])
def test_an_extrapolated_simulation_equals_the_complete_one(name, simulate):
    (_, short, errors), (_, whole, _) = simulate("long", name), simulate("long whole", name)
    assert short is not None, errors
    assert replace(short, wall_seconds=0.0) == replace(whole, wall_seconds=0.0)


SIMULATED = ("in backward fsdp", "fp16 pp", "cp flex")
"""Cases of every run; the others belong to the full run."""
OTHERS = [pytest.param(name, marks=pytest.mark.full) for name in (*SUPPORTED, "adamw8bit") if name not in (*SIMULATED, REFUSED)]


@pytest.mark.parametrize("name", [*SIMULATED, *OTHERS])
def test_supported_techniques_can_be_simulated(name, simulate):
    code, found, errors = simulate("supported", name)
    assert code == 0, errors
    assert 0 < found.between_steps_bytes < found.peak_memory_bytes == sum(found.memory.values())
    assert found.traffic
    assert found.flops > 0


def test_a_peak_within_the_update_is_at_the_optimizer(simulate):
    found = simulate("short", "ddp")[1]
    assert found.moment == Moment(phase="optimizer")
    assert found.memory["temporaries"] > 0


def test_notes_name_approximations_of_the_simulation(simulate):
    def notes(kind, name):
        return simulate(kind, name)[1].notes

    assert "upper bound" in " ".join(notes("supported", "compile fsdp budget"))
    assert "reducer" in " ".join(notes("real", "ddp"))
    assert "visited evenly" in " ".join(notes("real", "experts"))
    assert notes("offloaded", "none") == ()


def test_an_unsupported_technique_is_refused_in_one_line(simulate):
    code, found, errors = simulate("supported", REFUSED)
    assert (code, found) == (2, None)
    assert errors.startswith("offload streamed: ")
    assert errors.count("\n") == 1


def test_host_tensors_do_not_count_as_device_memory(simulate):
    found = {name: simulate("offloaded", name)[1] for name in OFFLOADED}
    states = found["none"].between_steps_bytes
    assert found["none"].host_memory_bytes == 0
    assert found["all"].memory["parameters"] == found["all"].memory["optimizer"] == 0
    assert found["all"].host_memory_bytes > states  # including the gradients
    assert found["all"].between_steps_bytes < states / 10
    assert found["optimizer"].memory["optimizer"] == 0
    assert found["optimizer"].memory["parameters"] == found["none"].memory["parameters"]
    assert found["in backward"].between_steps_bytes == found["optimizer"].between_steps_bytes
    assert found["in backward"].memory["optimizer"] == 0
    assert found["optimizer"].between_steps_bytes < found["in backward"].host_memory_bytes <= found["optimizer"].host_memory_bytes
    assert found["activations"].host_memory_bytes > 0
    assert found["activations"].memory["activations"] < found["none"].memory["activations"]


def traffic_of(record):
    return {(row.axis, row.collective): (row.calls, row.message_bytes) for row in record.traffic}
