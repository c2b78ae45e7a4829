"""A training that loses ranks is planned again for what is left, and only then."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from executors.conftest import in_full

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
    """The plan of the other tests on so many devices, all of which share its parameters."""
    candidate = with_settings(plan.candidate, {"dp_shard": count, **settings})
    wide = replace(plan.workload, global_batch=8)
    return replace(plan, cluster=replace(plan.cluster, gpus_per_node=count), workload=wide, candidate=candidate).identified()


@pytest.mark.parametrize("left", [7, 6, 3, 1])
def test_what_is_left_gets_a_legal_plan_of_the_same_training(plan: Plan, deck, left: int):
    whole = on_devices(plan, 8)
    found = plan_for_fewer_devices(whole, left, deck=deck, backend=BACKEND)
    ranks = found.candidate.layout.world_size
    assert max(1, left // 2) <= ranks <= left
    assert found.candidate.violations(found.model, found.workload, ranks) == ()
    assert (found.model, found.workload, found.cluster.device) == (whole.model, whole.workload, whole.cluster.device)
    assert BACKEND in found.backends


def test_what_changes_the_trained_model_stays_as_it_is(plan: Plan, deck):
    assert (
        plan_for_fewer_devices(on_devices(plan, 4, reduce_dtype="bf16"), 2, deck=deck, backend=BACKEND).candidate.knobs.reduce_dtype
        == "bf16"
    )
    assert plan_for_fewer_devices(on_devices(plan, 4), 2, deck=deck, backend=BACKEND).candidate.knobs.reduce_dtype == "fp32"


def test_whole_nodes_stay_whole(plan: Plan, deck):
    whole = on_devices(plan, 8)
    nodes = replace(whole, cluster=replace(whole.cluster, nodes=4, gpus_per_node=2))
    assert plan_for_fewer_devices(nodes, 7, deck=deck, backend=BACKEND).cluster.devices % 2 == 0


def test_what_fits_nowhere_is_said_in_one_line(plan: Plan, deck):
    small = replace(plan.cluster.device, memory_bytes=1000, usable_memory_bytes=1000)
    whole = on_devices(plan, 4)
    words = "3 devices left: of 4 there is no plan for them, nor for fewer: nothing that the cards allow fits the memory; resume"
    with pytest.raises(InputError, match=words) as caught:
        plan_for_fewer_devices(replace(whole, cluster=replace(whole.cluster, device=small)), 3, deck=deck, backend=BACKEND)
    assert "\n" not in str(caught.value)


def trained(executor: LocalExecutor, plan: Plan, folder: Path, deck, settings: TrialSettings) -> tuple[Measurement, list[Shrink]]:
    heard: list[Shrink] = []
    measurement = train(plan, folder, settings, deck=deck, executor=executor, backend=BACKEND, on_shrink=heard.append)
    assert codec.load(Measurement, folder / "measurement.json") == measurement
    return measurement, heard


def test_a_lost_rank_is_done_without(make_executor: MakeExecutor, plan: Plan, tmp_path: Path, deck):
    settings = replace(SETTINGS, save=str(tmp_path / "save"))
    measurement, heard = trained(make_executor("killed-in-the-first-part"), on_devices(plan, 4), tmp_path, deck, settings)
    (shrink,) = heard
    assert measurement.outcome is Outcome.OK
    assert (shrink.lost, shrink.ranks, shrink.step) == ((1,), 4, 0)
    assert shrink.plan.candidate.layout.world_size < 4
    assert measurement.plan_id == shrink.plan.id == codec.load(Plan, tmp_path / "plan.json").id


@pytest.mark.parametrize(
    ("fault", "lost", "left"),
    [
        ("keeper-killed", (1,), 3),
        in_full("all-killed", (0, 1, 2, 3), 4),
        ("launcher-killed", (0, 1, 2, 3), 4),
        in_full("trial-keeper-killed", (0, 1, 2, 3), 4),
    ],
)
def test_whichever_process_is_killed_the_dead_are_named_and_the_training_goes_on(
    make_executor: MakeExecutor, plan: Plan, tmp_path: Path, deck, fault: str, lost: tuple[int, ...], left: int
):
    settings = replace(SETTINGS, save=str(tmp_path / "save"))
    measurement, heard = trained(make_executor(f"{fault}-in-the-first-part"), on_devices(plan, 4), tmp_path, deck, settings)
    (shrink,) = heard
    assert (measurement.outcome, measurement.restarts, shrink.lost) == (Outcome.OK, 1, lost)
    assert left // 2 < shrink.plan.candidate.layout.world_size <= left
    assert codec.load(Measurement, tmp_path / "part-0" / "measurement.json").evidence.rank in lost


def test_ranks_that_may_start_again_are_replaced_first(make_executor: MakeExecutor, plan: Plan, tmp_path: Path, deck):
    settings, whole = replace(SETTINGS, save=str(tmp_path / "save"), max_restarts=1), on_devices(plan, 4)
    measurement, (heard,) = trained(make_executor("keeper-killed-in-the-first-part"), whole, tmp_path, deck, settings)
    assert (measurement.plan_id, heard.plan.id, heard.lost, heard.ranks) == (whole.id, whole.id, (1,), 4)


def test_a_request_to_stop_that_comes_between_two_parts_is_heard(make_executor: MakeExecutor, plan: Plan, tmp_path: Path, deck):
    settings, executor = replace(SETTINGS, save=str(tmp_path / "save")), make_executor("killed-in-the-first-part")
    measurement = train(
        on_devices(plan, 4), tmp_path, settings, deck=deck, executor=executor, backend=BACKEND,
        on_shrink=lambda shrink: (tmp_path / STOP_FILE).touch(),
    )  # fmt: skip
    assert (measurement.outcome, measurement.restarts) == (Outcome.CANCELLED, 0)
    assert measurement.evidence.message == "stopped at step 0 of 20, as asked"
    assert codec.load(Measurement, tmp_path / "measurement.json") == measurement


def test_a_training_that_loses_all_ranks_each_time_ends(make_executor: MakeExecutor, plan: Plan, tmp_path: Path, deck):
    measurement, heard = trained(make_executor("launcher-killed"), plan, tmp_path, deck, replace(SETTINGS, save=str(tmp_path)))
    assert (measurement.outcome, len(heard)) == (Outcome.INFRASTRUCTURE, MAX_FRUITLESS_RESTARTS - 1)


@pytest.mark.parametrize(
    ("fault", "outcome"), [("raises", Outcome.CRASH), in_full("nan", Outcome.NAN), in_full("oom", Outcome.OOM)]
)
def test_what_is_the_training_s_own_fault_ends_it(
    make_executor: MakeExecutor, plan: Plan, tmp_path: Path, deck, fault: str, outcome: Outcome
):
    settings = replace(SETTINGS, save=str(tmp_path / "save"))
    measurement, heard = trained(make_executor(fault), plan, tmp_path, deck, settings)
    assert (measurement.outcome, heard) == (outcome, [])
