"""Shadow runs, one rank executed alone: measured and modelled parts of a step, and outcomes of failures."""

import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from strategist.contract import codec
from strategist.contract.layout import Layout
from strategist.contract.measurement import MODELLED_PARTS, Evidence, Kind, Measurement, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.rank_observation import Traffic
from strategist.errors import InputError
from strategist.executors.shadow import ShadowExecutor, shadow_measurement, with_longer_deadlines

STAND_IN = str(Path(__file__).with_name("stand_in.py"))
SETTINGS = TrialSettings(steps=4, init_timeout_seconds=20.0, step_timeout_seconds=20.0, wall_timeout_seconds=40.0)


@pytest.fixture
def large(plan: Plan) -> Plan:
    """The plan on 64 devices."""
    cluster, candidate = replace(plan.cluster, gpus_per_node=64), replace(plan.candidate, layout=Layout(dp_shard=64))
    workload = replace(plan.workload, global_batch=64)
    return replace(plan, cluster=cluster, candidate=candidate, workload=workload).identified()


def rank_measurement(plan: Plan, **changes: object) -> Measurement:
    """The rank's measurement: a step of 40 ms, profiled as 50 ms, of which 10 ms stand in for peers."""
    measurement = Measurement(
        plan_id=plan.id, kind=Kind.REAL, outcome=Outcome.OK, step_seconds=0.04, steps_measured=4, peak_memory_bytes=(1000,),
        time={"matmul": 0.03, "optimizer": 0.01, "dp_communication": 0.006, "world_communication": 0.004}, losses=(0.0, 0.0),
        comm_ratio=0.2, traffic=(Traffic(axis="dp_shard", collective="all_gather", calls=4, message_bytes=100, seconds=0.01),),
    )  # fmt: skip
    return replace(measurement, **changes)


def test_the_step_is_the_sum_of_measured_and_modelled_parts(large: Plan) -> None:
    found = shadow_measurement(rank_measurement(large), large, 5)
    predicted = asdict(large.estimate.time)
    assert found.kind is Kind.SHADOW
    assert found.time is not None
    assert found.time["matmul"] == pytest.approx(0.024)
    assert found.time["optimizer"] == pytest.approx(0.008)
    assert found.time["dp_communication"] == predicted["dp_communication"]
    assert "world_communication" not in found.time
    assert found.step_seconds == pytest.approx(sum(found.time.values()))
    assert found.tokens_per_second == pytest.approx(large.workload.tokens_per_step / found.step_seconds)
    assert found.peak_memory_bytes == (1000,)


def test_the_bubble_scales_with_measured_computation(large: Plan) -> None:
    computing = sum(seconds for name, seconds in asdict(large.estimate.time).items() if name not in MODELLED_PARTS)
    found = shadow_measurement(rank_measurement(large), large, 0)
    assert found.time is not None
    assert found.time["bubble"] == pytest.approx(large.estimate.time.bubble * 0.032 / computing)


def test_figures_that_need_peers_are_left_out(large: Plan) -> None:
    found = shadow_measurement(
        rank_measurement(large, grad_norms=(2.0,), exposed_comm_ratio=0.1, bubble_ratio=0.1, rank_imbalance=0.0), large, 5
    )
    assert (found.losses, found.grad_norms) == ((), ())
    assert (found.comm_ratio, found.exposed_comm_ratio, found.bubble_ratio, found.rank_imbalance) == (None,) * 4
    assert found.traffic == (Traffic(axis="dp_shard", collective="all_gather", calls=4, message_bytes=100),)
    assert "rank 5 of 64" in found.notes[0]
    assert "is the model's" in found.notes[0]


def test_a_failure_names_the_shadowed_rank(large: Plan) -> None:
    oom = rank_measurement(
        large, outcome=Outcome.OOM, evidence=Evidence(message="no memory", rank=0, phase="build"), step_seconds=None
    )
    found = shadow_measurement(oom, large, 5)
    assert (found.kind, found.outcome, found.evidence.rank, found.evidence.phase) == (Kind.SHADOW, Outcome.OOM, 5, "build")


RANK = (sys.executable, STAND_IN, "rank")


@pytest.mark.parametrize(
    ("program", "outcome"),
    [
        ((*RANK, "well"), Outcome.OK),
        ((*RANK, "nan"), Outcome.NAN),
        ((*RANK, "never-starts"), Outcome.INFRASTRUCTURE),
        ((sys.executable, "-c", "raise SystemExit(77)"), Outcome.OOM),
    ],
)
def test_a_shadow_run_starts_one_process(program: tuple[str, ...], outcome: Outcome, large: Plan, tmp_path: Path) -> None:
    found = ShadowExecutor(study="test", rank=5, program=program).execute(large, tmp_path / "trial", SETTINGS)
    assert (found.kind, found.outcome) == (Kind.SHADOW, outcome)
    assert codec.load(Measurement, tmp_path / "trial" / "measurement.json") == found
    assert len(list((tmp_path / "trial").glob("rank-*.log"))) == 1


def test_the_start_deadline_grows_with_the_model(large: Plan) -> None:
    huge = replace(large, model=replace(large.model, hidden_size=16384, ffn_size=53248, layers=126))
    spread = replace(huge, candidate=replace(huge.candidate, layout=Layout(pp=4, dp_shard=16)))
    assert with_longer_deadlines(SETTINGS, huge).init_timeout_seconds > SETTINGS.init_timeout_seconds + 60
    assert with_longer_deadlines(SETTINGS, spread) == with_longer_deadlines(SETTINGS, huge)
    assert with_longer_deadlines(replace(SETTINGS, wall_timeout_seconds=None), huge).wall_timeout_seconds is None


@pytest.mark.parametrize("rank", [-1, 64])
def test_an_unknown_rank_is_refused_before_starting(rank: int, large: Plan, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is none of the plan's 64; choose 0 to 63"):
        ShadowExecutor(rank=rank, program=("false",)).execute(large, tmp_path / "trial", SETTINGS)
    assert not (tmp_path / "trial").exists()


def test_a_missing_device_kind_is_refused_before_starting(large: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    device = replace(large.cluster.device, kind="cuda", name="H100")
    there = replace(large, cluster=replace(large.cluster, device=device))
    with pytest.raises(InputError, match="computes on a cuda device, and this machine shows none"):
        ShadowExecutor(program=("false",)).execute(there, tmp_path / "trial", SETTINGS)
