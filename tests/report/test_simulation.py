"""The text of a simulation."""

from dataclasses import replace

from strategist.cli import simulate
from strategist.contract.rank_observation import Moment, Traffic
from strategist.contract.simulation import MEMORY_PARTS, SimulatedRank, Simulation
from strategist.report.simulation import SECTIONS, simulation_report
from strategist.units import GIB
from tests.report.samples import PLAN, rendered


def rank(number: int) -> SimulatedRank:
    return SimulatedRank(
        rank=number, stages=(number,), peak_memory_bytes=(number + 1) * GIB, memory=dict.fromkeys(MEMORY_PARTS, GIB),
        modules={f"layer {place}": GIB for place in range(20)}, moment=Moment(phase="backward"), between_steps_bytes=GIB,
        traffic=(Traffic(axis="pp", collective="send", calls=1, message_bytes=1, seconds=0.0, exposed_seconds=0.0),) * 10,
        peak_reserved_bytes=(number + 1) * GIB, host_memory_bytes=GIB, flops=1.0, wall_seconds=1.0, notes=("eager",) * 3,
    )  # fmt: skip


FOUND = Simulation(plan_id=PLAN.id, capacity_bytes=64.0 * GIB, predicted=PLAN.estimate.memory, ranks=tuple(map(rank, range(32))))


def test_a_simulation_of_many_ranks_fits_a_screen() -> None:
    lines = rendered(simulation_report(PLAN, FOUND), 80).splitlines()
    assert lines[0].startswith("Its tensors fit: at most 32.0 of 64.0 GiB, on rank 31.")
    assert len(lines) <= 40
    assert "the 8 fullest of 32" in "".join(lines)
    assert lines[-1].rstrip() == "More: strategist simulate --explain, or --show modules,collectives"


def test_sections_of_a_simulation_are_shown_by_name() -> None:
    assert tuple(SECTIONS) == simulate.SECTIONS
    text = rendered(simulation_report(PLAN, FOUND, ("ranks", "modules")), 80)
    assert "By module" in text
    assert "fullest of" not in text
    assert "Collectives" not in text


def test_tensors_that_only_an_upper_bound_does_not_fit_are_open() -> None:
    compiled = replace(PLAN.candidate, knobs=replace(PLAN.candidate.knobs, compile=True))
    over = replace(FOUND.peak_rank, peak_memory_bytes=65 * GIB, peak_reserved_bytes=66 * GIB, upper_bound=True)
    text = " ".join(rendered(simulation_report(replace(PLAN, candidate=compiled), replace(FOUND, ranks=(over,))), 200).split())
    assert text.startswith("It is open whether its tensors fit, since the simulation is an upper bound: at most 65.0 of 64.0 GiB")
    sure = replace(FOUND, ranks=(replace(over, upper_bound=False),))
    assert rendered(simulation_report(PLAN, sure), 200).startswith("Its tensors do not fit: at most 65.0 of 64.0 GiB")


def test_a_full_device_names_its_releases_and_the_option_that_avoids_them() -> None:
    full = replace(FOUND, ranks=(replace(FOUND.peak_rank, peak_reserved_bytes=64 * GIB, cache_releases=2),))
    text = " ".join(rendered(simulation_report(PLAN, full), 80).split())
    assert "reserves 64.0 of 64.0 GiB with its cache, which fits. The device is full 2 times a step" in text
    assert "--fix expandable_segments=true" in text
    over = replace(full, ranks=(replace(full.peak_rank, peak_reserved_bytes=65 * GIB),))
    assert "needs 65.0 of 64.0 GiB, 1.0 too many, even after" in " ".join(rendered(simulation_report(PLAN, over), 80).split())
    grown = replace(PLAN.candidate, options=replace(PLAN.candidate.options, expandable_segments=True))
    assert "expandable_segments" not in rendered(simulation_report(replace(PLAN, candidate=grown), full), 80)
