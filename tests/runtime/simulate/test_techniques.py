"""Every technique can be simulated, or says in a line why not; what can be compared with a real run equals it."""

from dataclasses import replace
from functools import cache

import pytest

from strategist.contract import codec
from strategist.contract.knobs import Knobs
from strategist.contract.layout import Layout
from strategist.contract.model import MoEShape
from strategist.contract.options import Options
from strategist.contract.simulation import SimulatedRank

from ..cases import cases
from ..launch import forked, records, trial_arguments
from ..plans import TINY, WORKLOAD, plan

MODEL = replace(TINY, layers=4, hidden_size=128, head_size=32, ffn_size=352, vocab_size=512)
EXPERTS = replace(MODEL, layers=2, moe=MoEShape(experts=4, experts_per_token=4, expert_ffn_size=64))
"""Every token visits every expert, so that a real run routes as evenly as a simulated one."""

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
AWAY = {
    "none": plan(layout=Layout(dp_shard=2), knobs=Knobs(micro_batch=2), **ON_GPUS),
    "all": plan(layout=Layout(dp_shard=2), knobs=Knobs(micro_batch=2, offload="all"), **ON_GPUS),
    "optimizer": plan(layout=Layout(dp_shard=2), knobs=Knobs(micro_batch=2, offload="optimizer"), **ON_GPUS),
    "beside": plan(
        layout=Layout(dp_shard=2), knobs=Knobs(micro_batch=2, offload="optimizer", optimizer_in_backward=True), **ON_GPUS
    ),
    "activations": plan(layout=Layout(dp_shard=2), knobs=Knobs(micro_batch=2, activation_offload=True), **ON_GPUS),
}
WORKS = (
    "qlora fsdp", "in backward fsdp", "float8 tensorwise fsdp", "muon pp", "fp16 pp", "cp flex", "cp alltoall none",
    "packed cp per document", "experts pp ep 2 interleaved", "experts ep 2 tp 2 etp 2 sequence", "ddp hook powersgd",
    "models fsdp latent", "beside tp", "compile fsdp budget", "experts streamed",
)  # fmt: skip
REFUSED = "experts streamed"

pytestmark = [pytest.mark.torch, pytest.mark.timeout(660)]


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """``shown(kind, name)``: a simulation of rank 1 of the plan: exit code, record and errors."""
    known = dict(cases())
    eight_bits = replace(REAL["ddp views"], workload=replace(LARGE, optimizer="adamw8bit")).identified()
    works = {name: known[name] for name in WORKS} | {"adamw8bit": eight_bits}
    plans = {"real": REAL, "works": works, "away": AWAY, "long": LONG, "long whole": LONG}

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
def test_equals_a_real_run(name, shown, tmp_path):
    done = forked(2, trial_arguments(REAL[name], tmp_path))
    assert done.returncode == 0, done.stderr
    real, (_, found, errors) = records(tmp_path)[1], shown("real", name)
    assert found is not None, errors
    assert found.peak_memory_bytes == pytest.approx(real.peak_memory_bytes, rel=2e-3)
    assert found.moment == real.peak_moment
    assert exchanged(found) == exchanged(real)


@pytest.mark.parametrize("name", ["ddp", pytest.param("experts", marks=pytest.mark.full)])
def test_few_layers_or_micro_batches_show_what_all_do(name, shown):
    (_, short, errors), (_, whole, _) = shown("long", name), shown("long whole", name)
    assert short is not None, errors
    assert replace(short, wall_seconds=0.0) == replace(whole, wall_seconds=0.0)


SIMULATED = ("in backward fsdp", "fp16 pp", "cp flex")
"""In every run; the others in the full one."""
OTHERS = [pytest.param(name, marks=pytest.mark.full) for name in (*WORKS, "adamw8bit") if name not in (*SIMULATED, REFUSED)]


@pytest.mark.parametrize("name", [*SIMULATED, *OTHERS])
def test_can_be_simulated(name, shown):
    code, found, errors = shown("works", name)
    assert code == 0, errors
    assert 0 < found.between_steps_bytes < found.peak_memory_bytes == sum(found.memory.values())
    assert found.traffic
    assert found.flops > 0


def test_what_stood_in_is_said(shown):
    def notes(kind, name):
        return shown(kind, name)[1].notes

    assert "upper bound" in " ".join(notes("works", "compile fsdp budget"))
    assert "reducer" in " ".join(notes("real", "ddp"))
    assert "visited evenly" in " ".join(notes("real", "experts"))
    assert notes("away", "none") == ()


def test_what_cannot_be_simulated_ends_in_one_line(shown):
    code, found, errors = shown("works", REFUSED)
    assert (code, found) == (2, None)
    assert errors.startswith("offload streamed: ")
    assert errors.count("\n") == 1


def test_what_lies_on_the_host_is_none_of_the_device(shown):
    found = {name: shown("away", name)[1] for name in AWAY}
    states = found["none"].between_steps_bytes
    assert found["none"].host_memory_bytes == 0
    assert found["all"].memory["parameters"] == found["all"].memory["optimizer"] == 0
    assert found["all"].host_memory_bytes > states  # the gradients too
    assert found["all"].between_steps_bytes < states / 10
    assert found["optimizer"].memory["optimizer"] == 0
    assert found["optimizer"].memory["parameters"] == found["none"].memory["parameters"]
    assert found["beside"].between_steps_bytes == found["optimizer"].between_steps_bytes
    assert found["beside"].memory["optimizer"] == 0
    assert found["optimizer"].between_steps_bytes < found["beside"].host_memory_bytes <= found["optimizer"].host_memory_bytes
    assert found["activations"].host_memory_bytes > 0
    assert found["activations"].memory["activations"] < found["none"].memory["activations"]


def exchanged(record):
    return {(row.axis, row.collective): (row.calls, row.message_bytes) for row in record.traffic}
