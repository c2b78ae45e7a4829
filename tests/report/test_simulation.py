"""The text of a simulation."""

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
