"""A simulation compares reserved memory with usable memory."""

from strategist.contract.rank_observation import Moment
from strategist.contract.simulation import RESERVED_NOTE, SimulatedRank, Simulation, Verdict


def simulated(tensors: int, reserved: int | None) -> Simulation:
    rank = SimulatedRank(
        rank=0, stages=(0,), peak_memory_bytes=tensors, between_steps_bytes=0, memory={}, modules={},
        moment=Moment(phase="forward"), traffic=(), flops=0.0, wall_seconds=0.0, peak_reserved_bytes=reserved,
    )  # fmt: skip
    return Simulation(plan_id="", capacity_bytes=100.0, predicted=None, ranks=(rank,))


def test_verdict_is_open_if_tensors_fit_but_reserved_memory_does_not() -> None:
    assert simulated(80, 100).proof.verdict is Verdict.FITS
    assert simulated(80, None).proof.verdict is Verdict.FITS
    assert simulated(101, 120).proof.verdict is Verdict.TOO_LARGE
    tight = simulated(80, 101)
    assert not tight.fits
    assert (tight.proof.verdict, tight.proof.why) == (Verdict.OPEN, RESERVED_NOTE)
