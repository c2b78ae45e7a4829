"""A training that loses ranks is replanned for the remaining devices, and only then."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from executors.conftest import full_only

from strategist.api import BACKEND, load_cards
from strategist.contract import codec
from strategist.contract.checkpoint import STOP_FILE
from strategist.contract.measurement import Measurement, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.settings import with_settings
from strategist.errors import InputError
from strategist.executors.local import LocalExecutor
from strategist.tuner.elastic import MAX_FRUITLESS_RESTARTS, Shrink, plan_for_fewer_devices, train

SETTINGS = TrialSettings(steps=4, total_steps=20, max_restarts=0, elastic=True, init_timeout_seconds=20.0)
MakeExecutor = Callable[..., LocalExecutor]


@pytest.fixture(scope="module")
def deck():
    return load_cards()


def on_devices(plan: Plan, count: int, **settings: object) -> Plan:
    """The shared test plan on ``count`` devices, with parameters sharded over all."""
    candidate = with_settings(plan.candidate, {"dp_shard": count, **settings})
    wide = replace(plan.workload, global_batch=8)
    return replace(plan, cluster=replace(plan.cluster, gpus_per_node=count), workload=wide, candidate=candidate).identified()


@pytest.mark.parametrize("left", [7, 6, 3, 1])
def test_remaining_devices_get_a_legal_plan_of_the_same_training(plan: Plan, deck, left: int):
    whole = on_devices(plan, 8)
    found = plan_for_fewer_devices(whole, left, deck=deck, backend=BACKEND)
    ranks = found.candidate.layout.world_size
    assert max(1, left // 2) <= ranks <= left
    assert found.candidate.violations(found.model, found.workload, ranks) == ()
    assert (found.model, found.workload, found.cluster.device) == (whole.model, whole.workload, whole.cluster.device)
    assert BACKEND in found.backends


def test_settings_that_change_convergence_are_kept(plan: Plan, deck):
    assert (
        plan_for_fewer_devices(on_devices(plan, 4, reduce_dtype="bf16"), 2, deck=deck, backend=BACKEND).candidate.knobs.reduce_dtype
        == "bf16"
    )
    assert plan_for_fewer_devices(on_devices(plan, 4), 2, deck=deck, backend=BACKEND).candidate.knobs.reduce_dtype == "fp32"


def test_the_new_plan_uses_whole_nodes(plan: Plan, deck):
    whole = on_devices(plan, 8)
    nodes = replace(whole, cluster=replace(whole.cluster, nodes=4, gpus_per_node=2))
    assert plan_for_fewer_devices(nodes, 7, deck=deck, backend=BACKEND).cluster.devices % 2 == 0


def test_a_training_that_no_longer_fits_ends_in_one_error_line(plan: Plan, deck):
    small = replace(plan.cluster.device, memory_bytes=1000, usable_memory_bytes=1000)
    whole = on_devices(plan, 4)
    words = "3 devices left: of 4 there is no plan for them, nor for fewer: nothing that the cards allow fits the memory; resume"
    with pytest.raises(InputError, match=words) as caught:
        plan_for_fewer_devices(replace(whole, cluster=replace(whole.cluster, device=small)), 3, deck=deck, backend=BACKEND)
    assert "\n" not in str(caught.value)


def trained(executor: LocalExecutor, plan: Plan, folder: Path, deck, settings: TrialSettings) -> tuple[Measurement, list[Shrink]]:
    shrinks: list[Shrink] = []
    measurement = train(plan, folder, settings, deck=deck, executor=executor, backend=BACKEND, on_shrink=shrinks.append)
    assert codec.load(Measurement, folder / "measurement.json") == measurement
    return measurement, shrinks


def test_a_training_continues_without_a_lost_rank(make_executor: MakeExecutor, plan: Plan, tmp_path: Path, deck):
    settings = replace(SETTINGS, save=str(tmp_path / "save"))
    measurement, shrinks = trained(make_executor("killed-in-the-first-part"), on_devices(plan, 4), tmp_path, deck, settings)
    (shrink,) = shrinks
    assert measurement.outcome is Outcome.OK
    assert (shrink.lost, shrink.ranks, shrink.step) == ((1,), 4, 0)
    assert shrink.plan.candidate.layout.world_size < 4
    assert measurement.plan_id == shrink.plan.id == codec.load(Plan, tmp_path / "plan.json").id


@pytest.mark.parametrize(
    ("fault", "lost", "left"),
    [
        ("supervisor-killed", (1,), 3),
        full_only("all-killed", (0, 1, 2, 3), 4),
        ("launcher-killed", (0, 1, 2, 3), 4),
        full_only("trial-supervisor-killed", (0, 1, 2, 3), 4),
    ],
)
def test_lost_ranks_are_named_and_the_training_continues_whichever_process_is_killed(
    make_executor: MakeExecutor, plan: Plan, tmp_path: Path, deck, fault: str, lost: tuple[int, ...], left: int
):
    settings = replace(SETTINGS, save=str(tmp_path / "save"))
    measurement, shrinks = trained(make_executor(f"{fault}-in-the-first-part"), on_devices(plan, 4), tmp_path, deck, settings)
    (shrink,) = shrinks
    assert (measurement.outcome, measurement.restarts, shrink.lost) == (Outcome.OK, 1, lost)
    assert left // 2 < shrink.plan.candidate.layout.world_size <= left
    assert codec.load(Measurement, tmp_path / "part-0" / "measurement.json").evidence.rank in lost


def test_ranks_with_restarts_left_are_replaced_first(make_executor: MakeExecutor, plan: Plan, tmp_path: Path, deck):
    settings, whole = replace(SETTINGS, save=str(tmp_path / "save"), max_restarts=1), on_devices(plan, 4)
    measurement, (shrinks,) = trained(make_executor("supervisor-killed-in-the-first-part"), whole, tmp_path, deck, settings)
    assert (measurement.plan_id, shrinks.plan.id, shrinks.lost, shrinks.ranks) == (whole.id, whole.id, (1,), 4)


def test_a_stop_request_between_two_parts_is_obeyed(make_executor: MakeExecutor, plan: Plan, tmp_path: Path, deck):
    settings, executor = replace(SETTINGS, save=str(tmp_path / "save")), make_executor("killed-in-the-first-part")
    measurement = train(
        on_devices(plan, 4), tmp_path, settings, deck=deck, executor=executor, backend=BACKEND,
        on_shrink=lambda shrink: (tmp_path / STOP_FILE).touch(),
    )  # fmt: skip
    assert (measurement.outcome, measurement.restarts) == (Outcome.CANCELLED, 0)
    assert measurement.evidence.message == "stopped at step 0 of 20, as asked"
    assert codec.load(Measurement, tmp_path / "measurement.json") == measurement


def test_a_training_that_always_loses_all_ranks_ends(make_executor: MakeExecutor, plan: Plan, tmp_path: Path, deck):
    measurement, shrinks = trained(make_executor("launcher-killed"), plan, tmp_path, deck, replace(SETTINGS, save=str(tmp_path)))
    assert (measurement.outcome, len(shrinks)) == (Outcome.INFRASTRUCTURE, MAX_FRUITLESS_RESTARTS - 1)


@pytest.mark.parametrize(
    ("fault", "outcome"), [("raises", Outcome.CRASH), full_only("nan", Outcome.NAN), full_only("oom", Outcome.OOM)]
)
def test_a_fault_of_the_training_itself_ends_the_training(
    make_executor: MakeExecutor, plan: Plan, tmp_path: Path, deck, fault: str, outcome: Outcome
):
    settings = replace(SETTINGS, save=str(tmp_path / "save"))
    measurement, shrinks = trained(make_executor(fault), plan, tmp_path, deck, settings)
    assert (measurement.outcome, shrinks) == (outcome, [])
