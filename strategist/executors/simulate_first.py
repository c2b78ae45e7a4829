"""Executor that simulates plans that may not fit before another executor runs them."""

import time
from concurrent.futures import ThreadPoolExecutor, TimeoutError as NotYetError
from pathlib import Path

from strategist.contract import codec
from strategist.contract.measurement import Evidence, Kind, Measurement, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.progress import Progress
from strategist.contract.simulation import Proof, Verdict
from strategist.executors.executor import Executor, OnEvent
from strategist.executors.local import prepared
from strategist.executors.simulator import prove
from strategist.frozen import frozen
from strategist.units import show_bytes

SIMULATED_SHARE = 0.75
"""Plans whose tensors are predicted to use at least this share of a device's memory are simulated first.

For no plan in docs/memory.md is the prediction lower than this share of the simulated value; a smaller plan runs sooner than it
is simulated.
"""

HEARTBEAT_SECONDS = 0.5


@frozen
class SimulateFirstExecutor:
    """Runs plans by ``inner``, except those whose tensors are too large for a device by simulation: their measurement is an
    out-of-memory of kind simulated.
    """

    inner: Executor

    def execute(self, plan: Plan, folder: Path, settings: TrialSettings, on_event: OnEvent | None = None) -> Measurement:
        """Simulates the plan if it may not fit, and runs it unless the simulation shows that it does not."""
        self.preflight(plan)
        estimate = plan.estimate
        if estimate.memory.allocated >= SIMULATED_SHARE * estimate.capacity_bytes:
            begun = time.monotonic()
            proof = _proof(plan, on_event)
            if proof.verdict is Verdict.TOO_LARGE:
                measurement = _too_large(plan, proof, time.monotonic() - begun)
                codec.save(measurement, prepared(folder, plan, settings) / "measurement.json")
                return measurement
        return self.inner.execute(plan, folder, settings, on_event)

    def preflight(self, plan: Plan) -> None:
        """Preflight of the inner executor: a plan that cannot run needs no simulation."""
        self.inner.preflight(plan)


def _proof(plan: Plan, on_event: OnEvent | None) -> Proof:
    """Result of the simulation; ``on_event`` is called regularly while it runs."""
    begun = time.monotonic()
    with ThreadPoolExecutor(max_workers=1) as pool:
        simulation = pool.submit(prove, plan)
        while True:
            try:
                return simulation.result(HEARTBEAT_SECONDS)
            except NotYetError:
                if on_event is not None:
                    on_event(Progress(phase="simulate", step=None, elapsed_seconds=time.monotonic() - begun))


def _too_large(plan: Plan, proof: Proof, seconds: float) -> Measurement:
    peak = proof.peak_memory_bytes or 0
    message = (
        f"simulated, not started: its tensors take {show_bytes(peak)}, a device holds {show_bytes(plan.estimate.capacity_bytes)}"
    )
    return Measurement(
        plan_id=plan.id,
        kind=Kind.SIMULATED,
        outcome=Outcome.OOM,
        evidence=Evidence(message=message),
        peak_memory_bytes=(peak,),
        wall_seconds=seconds,
    )
