"""The shadow executor: one rank of a plan on one device, whatever the size of the cluster; its peers are modelled."""

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from strategist.contract import codec
from strategist.contract.environment import environment
from strategist.contract.measurement import MODELLED_PARTS, Kind, Measurement, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.errors import InputError
from strategist.executors.executor import OnEvent
from strategist.executors.local import (
    RUNTIME,
    devices_here,
    prepared,
    run_trial,
    supervised_rank,
    threads,
    trial_environment,
)
from strategist.executors.preflight import require_ready
from strategist.executors.requirements import require_supervision, require_torch

ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
"""What a launcher would tell the only process; its records are those of rank 0."""


DRAW_SECONDS = 2.5e-8
"""For one of a rank's first weights, drawn on the host: 1.2e-8 measured on a core of a cloud machine, twice that waited for."""


@dataclass(frozen=True, kw_only=True)
class ShadowExecutor:
    """Runs one ``rank`` of a plan here, on a device of the plan's kind. The first one lies in the first stage of a pipeline, which
    holds the embedding and the activations of the most micro-batches.

    ``study`` marks the processes of one study; ``program`` is what the rank runs, with plan, folder, settings and its number.
    """

    study: str = "study"
    rank: int = 0
    program: tuple[str, ...] = RUNTIME

    def execute(self, plan: Plan, folder: Path, settings: TrialSettings, on_event: OnEvent | None = None) -> Measurement:
        """Runs the rank in ``folder``; see :class:`strategist.executors.executor.Executor`."""
        self.preflight(plan)
        settings = with_longer_deadlines(settings, plan)
        folder = prepared(folder, plan, settings)
        seen = run_trial(
            plan, folder, settings, on_event,
            command=(*supervised_rank(folder, self.program), "--shadow", str(self.rank)),
            environment={**trial_environment(os.environ, threads(plan)), **environment(plan), **ALONE},
            study=self.study, starts=1, ranks=1,
        )  # fmt: skip
        measurement = shadow_measurement(seen, plan, self.rank)
        codec.save(measurement, folder / "measurement.json")
        return measurement

    def preflight(self, plan: Plan) -> None:
        """What would fail every trial is said before the first.

        Raises:
            InputError: no Linux, no torch, no device of the plan's kind, or no such rank.
        """
        require_supervision()
        if self.program == RUNTIME:
            require_torch()
        require_ready(plan.cluster.device.kind, ours=self.program == RUNTIME)
        ranks, kind = plan.candidate.layout.world_size, plan.cluster.device.kind
        if not 0 <= self.rank < ranks:
            raise InputError(f"rank {self.rank}", f"is none of the plan's {ranks}", f"choose 0 to {ranks - 1}")
        if kind != "cpu" and not devices_here():
            law = f"a shadow computes on a {kind} device, and this machine shows none"
            raise InputError(f"plan {plan.id} for {plan.cluster.device.name}", law, "simulate it: strategist simulate needs none")


def with_longer_deadlines(settings: TrialSettings, plan: Plan) -> TrialSettings:
    """Deadlines that leave one process the time to draw its weights, which are more than usual where one device stands for a rank
    of many layers; ranks of tensor parallelism draw whole rows, too."""
    layout, wall = plan.candidate.layout, settings.wall_timeout_seconds
    drawing = DRAW_SECONDS * plan.model.parameters / (layout.pp * layout.fsdp_ranks)
    return replace(
        settings,
        init_timeout_seconds=settings.init_timeout_seconds + drawing,
        wall_timeout_seconds=None if wall is None else wall + drawing,
    )


def shadow_measurement(seen: Measurement, plan: Plan, rank: int) -> Measurement:
    """What a trial of one process says of ``rank`` of the plan.

    What stood in for collectives is taken out of the step, and the estimate's communication and bubble come in its place. A bubble
    is waiting for what others compute, so it is as much longer than predicted as computing is.
    """
    evidence = replace(seen.evidence, rank=None if seen.evidence.rank is None else rank)
    if seen.outcome is not Outcome.OK or not seen.step_seconds:
        return replace(seen, kind=Kind.SHADOW, evidence=evidence, notes=_notes(plan, rank, seen))
    profiled = seen.time or {"other": seen.step_seconds}
    stretch = seen.step_seconds / sum(profiled.values())  # the profiler slows a step, and all of it alike
    own = {name: seconds * stretch for name, seconds in profiled.items() if not name.endswith(APART)}
    predicted = asdict(plan.estimate.time)
    computing = sum(seconds for name, seconds in predicted.items() if name not in MODELLED_PARTS)
    modelled = {name: predicted[name] for name in MODELLED_PARTS}
    modelled["bubble"] *= sum(own.values()) / computing if computing else 1.0
    time = {**own, **modelled}
    step_seconds = sum(time.values())
    return Measurement(
        plan_id=plan.id, kind=Kind.SHADOW, outcome=Outcome.OK, evidence=evidence,
        step_seconds=step_seconds,
        step_seconds_spread=seen.step_seconds_spread,
        steps_measured=seen.steps_measured,
        warmup_steps=seen.warmup_steps,
        tokens_per_second=plan.workload.tokens_per_step / step_seconds,
        mfu=plan.estimate.mfu * plan.estimate.step_seconds / step_seconds if plan.estimate.step_seconds > 0 else None,
        peak_memory_bytes=seen.peak_memory_bytes,
        peak_reserved_bytes=seen.peak_reserved_bytes,
        peak_moments=seen.peak_moments,
        profiled_step_seconds=step_seconds,
        time=time,
        traffic=tuple(replace(row, seconds=0.0, exposed_seconds=0.0) for row in seen.traffic if row.calls),
        wall_seconds=seen.wall_seconds,
        versions=seen.versions,
        notes=_notes(plan, rank, seen),
    )  # fmt: skip


APART = ("_communication", "bubble")
"""How parts end that take peers."""


def _notes(plan: Plan, rank: int, seen: Measurement) -> tuple[str, ...]:
    where = seen.versions.get("device", "one process on this CPU")
    ranks = plan.candidate.layout.world_size
    return (
        f"Shadow of rank {rank} of {ranks}: memory and computing are measured on {where}; what its peers add, exposed"
        " communication and bubble, is the model's.",
        *_unlike(plan, rank, seen),
    )


def _unlike(plan: Plan, rank: int, seen: Measurement) -> tuple[str, ...]:
    """What makes this rank not quite the one that a step waits for."""
    layout, model = plan.candidate.layout, plan.model
    found = []
    if layout.pp > 1:
        found.append(
            f"A pipeline goes at the pace of its slowest stage; this rank has place {layout.stage_of(rank) + 1} of {layout.pp}."
        )
    if model.moe is not None and layout.ep > 1:
        found.append("Its experts get as many tokens as the rank sends: experts of other ranks may be busier.")
    return tuple(found)
