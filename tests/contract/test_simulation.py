"""Verdicts of a simulation on a plan's memory."""

from dataclasses import fields

import pytest

from strategist.contract.estimate import MemoryParts
from strategist.contract.rank_observation import Moment
from strategist.contract.simulation import RESERVED_NOTE, SimulatedRank, Simulation, Verdict

PREDICTED = MemoryParts(**{field.name: 0.0 for field in fields(MemoryParts)})


def simulation(*peaks: int, notes: tuple[str, ...] = (), upper_bound: bool = False) -> Simulation:
    ranks = tuple(
        SimulatedRank(
            rank=rank, stages=(rank,), peak_memory_bytes=peak, between_steps_bytes=0, memory={}, modules={},
            moment=Moment(phase="forward"), traffic=(), flops=0.0, wall_seconds=0.0, peak_reserved_bytes=peak + 5,
            notes=notes, upper_bound=upper_bound,
        )
        for rank, peak in enumerate(peaks)
    )  # fmt: skip
    return Simulation(plan_id="p", capacity_bytes=100.0, predicted=PREDICTED, ranks=ranks)


@pytest.mark.parametrize(
    ("found", "verdict", "why"),
    [
        (simulation(40, 90), Verdict.FITS, ""),
        (simulation(40, 101), Verdict.TOO_LARGE, ""),
        (simulation(40, 97), Verdict.OPEN, RESERVED_NOTE),
        (simulation(101, notes=("compiled layers keep less",), upper_bound=True), Verdict.OPEN, "compiled layers keep less"),
        (simulation(90, notes=("compiled layers keep less",), upper_bound=True), Verdict.FITS, ""),
        (simulation(101, notes=("experts are visited evenly",)), Verdict.TOO_LARGE, ""),
    ],
)
def test_the_verdict_follows_the_fullest_rank_unless_its_peak_is_an_upper_bound(
    found: Simulation, verdict: Verdict, why: str
) -> None:
    proof = found.proof
    most = max(rank.peak_memory_bytes for rank in found.ranks)
    assert (proof.verdict, proof.why, proof.peak_memory_bytes, proof.peak_reserved_bytes) == (verdict, why, most, most + 5)
