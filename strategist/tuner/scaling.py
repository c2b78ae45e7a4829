"""Scaling: a plan measured on growing numbers of devices. Its data-parallel axis grows if possible; otherwise the planner plans
again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from strategist.cards.deck import Deck
from strategist.contract.knobs import Candidate
from strategist.contract.layout import Layout
from strategist.contract.measurement import GLOO_NOTE, Measurement, Outcome
from strategist.contract.plan import Plan
from strategist.contract.progress import counted
from strategist.contract.request import Request
from strategist.contract.scaling import Scaling, ScalingPoint
from strategist.cost.calibration import Calibration
from strategist.errors import InputError
from strategist.executors.executor import TrialRunner
from strategist.frozen import frozen
from strategist.planning import planner
from strategist.profiles import local_machine
from strategist.profiles.cluster import scaled
from strategist.profiles.situation import Situation, situation_of_plan

OnPoint = Callable[[ScalingPoint], None]
GIVEN, DATA_AXIS, PLANNED = "as given", "data axis", "planned anew"


@frozen
class Scaled:
    """The plan for one number of devices, and how it was made; ``plan`` is None if there is none, and ``message`` is the reason."""

    devices: int
    how: str
    global_batch: int
    plan: Plan | None = None
    message: str = ""


def scale(
    plan: Plan,
    counts: Sequence[int],
    *,
    weak: bool,
    folder: Path,
    runner: TrialRunner,
    deck: Deck,
    calibration: Calibration | None = None,
    backend: str = "native",
    on_point: OnPoint | None = None,
) -> Scaling:
    """Measures the plan on each number of devices, smallest first.

    Raises:
        InputError: for weak scaling, a count that leaves no whole global batch; or more devices than the cluster has.
    """
    planned = tuple(scaled_plans(plan, counts, weak=weak, deck=deck, calibration=calibration, backend=backend))
    points: list[ScalingPoint] = []
    for scaled_plan in counted(planned, "counts of devices"):
        measured = (
            None
            if scaled_plan.plan is None
            else runner.executor.execute(scaled_plan.plan, folder / f"{scaled_plan.devices}", runner.settings)
        )
        points.append(_point(scaled_plan, measured, points))
        if on_point is not None:
            on_point(points[-1])
    return Scaling(plan_id=plan.id, scaling="weak" if weak else "strong", points=tuple(points), notes=_notes(plan, counts))


def scaled_plans(
    plan: Plan, counts: Sequence[int], *, weak: bool, deck: Deck, calibration: Calibration | None = None, backend: str = "native"
) -> Iterator[Scaled]:
    """The plan for each number of devices, smallest first."""
    for devices in sorted(set(counts)):
        yield _scaled(_situation_of(plan, devices, weak=weak, backend=backend), plan, deck, calibration)


def _situation_of(plan: Plan, devices: int, *, weak: bool, backend: str) -> Situation:
    """The plan's situation with this number of devices in one node."""
    cluster = scaled(plan.cluster, 1, devices)
    share, rest = divmod(plan.workload.global_batch * devices, plan.cluster.devices)
    if weak and rest:
        law = f"a global batch of {plan.workload.global_batch} on {plan.cluster.devices} devices is not a whole number on {devices}"
        raise InputError(f"--gpus {devices} --weak", law, "choose counts that divide evenly, or plan with another global batch")
    workload = replace(plan.workload, global_batch=share) if weak else plan.workload
    request = Request(model=plan.model.name, gpus=cluster.name, workload=workload, backend=backend)
    return situation_of_plan(plan, request, cluster)


def _scaled(situation: Situation, plan: Plan, deck: Deck, calibration: Calibration | None) -> Scaled:
    devices, workload = situation.cluster.devices, situation.request.workload
    if devices == plan.cluster.devices and workload == plan.workload:
        return Scaled(devices=devices, how=GIVEN, global_batch=workload.global_batch, plan=plan)
    for candidate in _data_scaled(plan.candidate, devices):
        if not candidate.violations(situation.model, workload, devices):
            priced = planner.price_candidate(situation, candidate, deck=deck, calibration=calibration)
            if priced.estimate.fits:
                return Scaled(devices=devices, how=DATA_AXIS, global_batch=workload.global_batch, plan=priced)
    try:
        best = planner.ranked(situation, deck=deck, calibration=calibration, limit=1)
    except InputError as error:
        return Scaled(devices=devices, how=PLANNED, global_batch=workload.global_batch, message=str(error))
    message = "" if best else "nothing fits"
    return Scaled(devices=devices, how=PLANNED, global_batch=workload.global_batch, plan=best[0] if best else None, message=message)


def _data_scaled(candidate: Candidate, devices: int) -> Iterator[Candidate]:
    """The candidate with its data axis resized for the devices; micro-batches are halved from the plan's own down to 1."""
    layout, knobs = candidate.layout, candidate.knobs
    data, rest = divmod(devices, layout.pp * layout.cp * layout.tp)
    if rest or not data:
        return
    for laid in _layouts(layout, data):
        micro = knobs.micro_batch
        while micro:
            yield replace(candidate, layout=laid, knobs=replace(knobs, micro_batch=micro))
            micro //= 2


def _layouts(layout: Layout, data: int) -> Iterator[Layout]:
    """Layouts with this number of data ranks. Replicas grow if there are replicas; shards grow if there are none, or if only
    shards can.
    """
    if layout.dp_replicate > 1 and data % layout.dp_shard == 0:
        yield replace(layout, dp_replicate=data // layout.dp_shard)
    if layout.dp_shard > 1 and data % layout.dp_replicate == 0:
        yield replace(layout, dp_shard=data // layout.dp_replicate)
    if layout.data_ranks == 1:
        yield replace(layout, dp_shard=data)
    elif data == 1:
        yield replace(layout, dp_replicate=1, dp_shard=1)


def _point(scaled_plan: Scaled, measured: Measurement | None, earlier_points: Sequence[ScalingPoint]) -> ScalingPoint:
    plan = scaled_plan.plan
    if plan is None or measured is None:
        return ScalingPoint(
            devices=scaled_plan.devices, how=scaled_plan.how, plan_id="", layout="", global_batch=scaled_plan.global_batch,
            outcome=Outcome.REFUSED, message=scaled_plan.message,
        )  # fmt: skip
    first = next((point for point in earlier_points if point.tokens_per_second is not None), None)
    rate = measured.tokens_per_second
    single = None if rate is None else rate / scaled_plan.devices
    base = single if first is None or first.tokens_per_second is None else first.tokens_per_second / first.devices
    return ScalingPoint(
        devices=scaled_plan.devices,
        how=scaled_plan.how,
        plan_id=plan.id,
        layout=", ".join(f"{axis} {size}" for axis, size in plan.candidate.layout.mesh.items()) or "1 device",
        global_batch=scaled_plan.global_batch,
        outcome=measured.outcome,
        predicted_tokens_per_second=plan.estimate.tokens_per_second,
        tokens_per_second=rate,
        step_seconds=measured.step_seconds,
        step_seconds_spread=measured.step_seconds_spread,
        exposed_comm_ratio=measured.exposed_comm_ratio,
        efficiency=None if single is None or base is None else single / base,
        message=measured.evidence.message,
    )


def _notes(plan: Plan, counts: Sequence[int]) -> tuple[str, ...]:
    if plan.cluster.device.kind != "cpu":
        return ()
    cores = local_machine.cores()
    shared = f"Up to {max(counts)} ranks share {cores} cores here, so beyond {cores} efficiency falls by that alone."
    return (*((shared,) if max(counts) > cores else ()), GLOO_NOTE)
