"""Scaling of a plan: plans for each number of devices, efficiency, and one real run."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from strategist import api
from strategist.cli.main import main
from strategist.contract import codec
from strategist.contract.layout import Layout
from strategist.contract.measurement import Evidence, Kind, Measurement, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.scaling import Scaling
from strategist.contract.workload import Workload
from strategist.errors import InputError
from strategist.executors.executor import TrialRunner
from strategist.planning.planner import price_candidate
from strategist.profiles.situation import situation
from strategist.report.scaling import scaling_plot, scaling_report
from strategist.tuner.scaling import DATA_AXIS, GIVEN, PLANNED, scale, scaled_plans
from tests.report.samples import rendered

DECK = api.load_cards()
WORKLOAD = Workload(seq_len=64, global_batch=8)


def best(gpus: str, **fix: int) -> Plan:
    request = Request(model="tiny", gpus=gpus, workload=WORKLOAD, backend="native", fix={"micro_batch": 1, **fix})
    return api.plan(request, top=1).plans[0]


SHARDED, TENSOR = best("4xcpu", dp_shard=4), best("4xcpu", tp=4)


@dataclass
class StandIn:
    """Executor with 100 tokens/s on one device, and 0.9 of the ideal for each doubling; out of memory on ``broken`` devices."""

    broken: int = 0
    folders: list[Path] = field(default_factory=list)

    def execute(self, plan: Plan, folder: Path, settings: TrialSettings, on_event: object = None) -> Measurement:
        self.folders.append(folder)
        devices = plan.candidate.layout.world_size
        if devices == self.broken:
            return Measurement(plan_id=plan.id, kind=Kind.REAL, outcome=Outcome.OOM, evidence=Evidence(message="no memory left"))
        rate = 100.0 * devices * {1: 1.0, 2: 0.9, 4: 0.81, 8: 0.729}[devices]
        return Measurement(
            plan_id=plan.id, kind=Kind.REAL, outcome=Outcome.OK, tokens_per_second=rate, step_seconds=512 / rate,
            step_seconds_spread=0.01, exposed_comm_ratio=0.1,
        )  # fmt: skip


def scaled(plan: Plan, counts: tuple[int, ...], folder: Path, *, weak: bool = False, broken: int = 0) -> Scaling:
    return scale(
        plan, counts, weak=weak, folder=folder, runner=TrialRunner(executor=StandIn(broken), settings=TrialSettings()), deck=DECK
    )


def test_the_data_axis_scales_with_the_number_of_devices() -> None:
    found = list(scaled_plans(SHARDED, (8, 1, 2, 4), weak=False, deck=DECK))
    assert [(each.devices, each.how) for each in found] == [(1, DATA_AXIS), (2, DATA_AXIS), (4, GIVEN), (8, DATA_AXIS)]
    assert [each.plan.candidate.layout for each in found] == [Layout(dp_shard=count) for count in (1, 2, 4, 8)]
    assert found[2].plan == SHARDED
    assert {each.plan.workload.global_batch for each in found} == {8}


def test_the_planner_decides_if_the_data_axis_cannot_scale() -> None:
    two, eight = scaled_plans(TENSOR, (2, 8), weak=False, deck=DECK)
    assert (two.how, eight.how) == (PLANNED, DATA_AXIS)
    assert two.plan.candidate.layout.world_size == 2
    assert eight.plan.candidate.layout == Layout(dp_shard=2, tp=4)


def test_weak_scaling_keeps_the_batch_per_device() -> None:
    found = list(scaled_plans(SHARDED, (1, 2, 8), weak=True, deck=DECK))
    assert [each.plan.workload.global_batch for each in found] == [2, 4, 16]
    odd = replace(SHARDED, workload=replace(WORKLOAD, global_batch=6))
    with pytest.raises(InputError, match="not a whole number on 3"):
        list(scaled_plans(odd, (3,), weak=True, deck=DECK))


def test_replicas_scale_if_the_plan_has_replicas() -> None:
    hybrid = replace(SHARDED.candidate, layout=Layout(dp_replicate=2, dp_shard=2))
    (eight,) = scaled_plans(replace(SHARDED, candidate=hybrid), (8,), weak=False, deck=DECK)
    assert eight.plan.candidate.layout == Layout(dp_replicate=4, dp_shard=2)


def test_replicas_that_do_not_fit_are_not_sharded_on_more_devices() -> None:
    """Of 1.2 billion parameters a device of 16 GiB holds half of the states; the plan of the smaller number has no shards."""
    asked = situation(Request(model="1b", gpus="4x16GB", workload=Workload(seq_len=128, global_batch=8)))
    whole = price_candidate(asked, replace(SHARDED.candidate, layout=Layout(dp_replicate=4)), deck=DECK)
    (eight,) = scaled_plans(whole, (8,), weak=False, deck=DECK)
    assert not whole.estimate.fits
    assert eight.how == PLANNED


def test_efficiency_is_relative_to_the_smallest_number_of_devices(tmp_path: Path) -> None:
    found = scaled(SHARDED, (1, 2, 4, 8), tmp_path)
    assert [point.efficiency for point in found.points] == pytest.approx([1.0, 0.9, 0.81, 0.729])
    later = scaled(SHARDED, (2, 4), tmp_path)
    assert [point.efficiency for point in later.points] == pytest.approx([1.0, 0.9])


def test_a_failed_run_has_its_reason_and_the_next_is_the_baseline(tmp_path: Path) -> None:
    found = scaled(SHARDED, (1, 2, 4), tmp_path, broken=1)
    assert [(point.outcome, point.efficiency) for point in found.points[:2]] == [(Outcome.OOM, None), (Outcome.OK, 1.0)]
    assert "oom: no memory left" in " ".join(rendered(scaling_report(found)).split())


def test_the_plot_shows_each_count_and_the_ideal(tmp_path: Path) -> None:
    root = ElementTree.fromstring(scaling_plot(scaled(SHARDED, (1, 2, 4), tmp_path)))
    places = [(float(dot.get("cx")), float(dot.get("cy"))) for dot in root.findall(".//{*}circle")]
    assert len(places) == 3
    assert places == sorted(places, key=lambda place: (place[0], -place[1]))  # tokens/s grow with devices
    titles = [title.text for title in root.findall(".//{*}title")]
    assert titles[1] == "2 devices: 180 tokens/s, 90% of the ideal"
    ElementTree.fromstring(scaling_plot(scaled(SHARDED, (1,), tmp_path, broken=1)))  # nothing to draw is not an error


def test_scaling_on_one_cpu_has_a_note(tmp_path: Path) -> None:
    assert "does not predict that of GPUs" in scaled(SHARDED, (1,), tmp_path).notes[-1]


@pytest.mark.parametrize("text", ["", "0,1", "1,,2", "a", "-1"])
def test_invalid_numbers_of_devices_are_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    codec.save(SHARDED, tmp_path / "plan.json")
    assert main(["scale", str(tmp_path / "plan.json"), f"--gpus={text}"]) == 2
    assert "counts of devices are needed" in capsys.readouterr().err


@pytest.mark.torch
@pytest.mark.timeout(180)
@pytest.mark.full
def test_a_plan_is_measured_on_one_and_two_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    codec.save(best("2xcpu", dp_replicate=2), tmp_path / "plan.json")
    assert main(["scale", str(tmp_path / "plan.json"), "--gpus", "1,2", "--steps", "2", "--json"]) == 0
    found = codec.loads(Scaling, capsys.readouterr().out)
    assert [point.layout for point in found.points] == ["1 device", "dp_replicate 2"]
    assert found.points[0].efficiency == 1.0
    assert found.points[1].efficiency is not None
    folder = tmp_path / "plan-scale"
    assert codec.load(Scaling, folder / "scaling.json") == found
    assert (folder / "scaling.svg").exists()
    assert json.loads((folder / "2" / "measurement.json").read_text(encoding="utf-8"))["outcome"] == "ok"
