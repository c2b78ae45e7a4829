"""Shadow executor: runs one rank of a plan on one device, for a cluster of any size; its peers are modelled."""

import os
from collections.abc import Mapping
from dataclasses import asdict, replace
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
from strategist.executors.processes import new_tag
from strategist.executors.requirements import require_supervision, require_torch
from strategist.executors.trial_process import TrialCommand
from strategist.frozen import frozen

SINGLE_RANK = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
"""Variables that a launcher would set for the only process; its records are those of rank 0."""


DRAW_SECONDS = 2.5e-8
"""Seconds to initialise one weight of a rank on the host: measured as 1.2e-8 on a core of a cloud machine, doubled as a margin."""


@frozen
class ShadowExecutor:
    """Runs one ``rank`` of a plan on a device of the plan's kind. Rank 0 is in the first pipeline stage, which has the embedding
    and the activations of the most micro-batches.

    study: marks the processes of one study.
    program: command of the rank; plan, folder, settings and rank number follow it.
    """

    study: str = "study"
    rank: int = 0
    program: tuple[str, ...] = RUNTIME

    def execute(self, plan: Plan, folder: Path, settings: TrialSettings, on_event: OnEvent | None = None) -> Measurement:
        """Runs the rank in ``folder``; see :class:`strategist.executors.executor.Executor`."""
        self.preflight(plan)
        settings = with_longer_deadlines(settings, plan)
        folder = prepared(folder, plan, settings)
        command = TrialCommand(
            words=(*supervised_rank(folder, self.program), "--shadow", str(self.rank)),
            environment={**trial_environment(os.environ, threads(plan)), **environment(plan), **SINGLE_RANK},
            tag=new_tag(self.study),
            ranks=1,
        )
        measured = run_trial(plan, folder, settings, on_event, command, starts=1)
        measurement = shadow_measurement(measured, plan, self.rank)
        codec.save(measurement, folder / "measurement.json")
        return measurement

    def preflight(self, plan: Plan) -> None:
        """Raises an error for anything that would fail every trial.

        Raises:
            InputError: no Linux, no torch, no device of the plan's kind, or no such rank.
        """
        require_supervision()
        ranks, kind = plan.candidate.layout.world_size, plan.cluster.device.kind
        if not 0 <= self.rank < ranks:
            raise InputError(f"rank {self.rank}", f"is none of the plan's {ranks}", f"choose 0 to {ranks - 1}")
        if kind != "cpu" and not devices_here():
            law = f"a shadow computes on a {kind} device, and this machine shows none"
            raise InputError(f"plan {plan.id} for {plan.cluster.device.name}", law, "simulate it: strategist simulate needs none")
        if self.program == RUNTIME:
            require_torch()
        require_ready(kind, own_runtime=self.program == RUNTIME)  # starts a process that imports torch, so it comes last


def with_longer_deadlines(settings: TrialSettings, plan: Plan) -> TrialSettings:
    """Settings with deadlines that include the time to initialise weights: one process does it for a rank with many layers, and
    with tensor parallelism for whole rows.
    """
    layout, wall = plan.candidate.layout, settings.wall_timeout_seconds
    drawing = DRAW_SECONDS * plan.model.parameters / (layout.pp * layout.fsdp_ranks)
    return replace(
        settings,
        init_timeout_seconds=settings.init_timeout_seconds + drawing,
        wall_timeout_seconds=None if wall is None else wall + drawing,
    )


def shadow_measurement(measured: Measurement, plan: Plan, rank: int) -> Measurement:
    """Measurement of ``rank`` of the plan, from the trial of one process.

    The stand-ins for collectives are removed from the step, and the estimate's communication and bubble are added. The bubble is
    the wait for the compute of other ranks, so it is scaled by the ratio of measured to predicted compute time.
    """
    evidence = replace(measured.evidence, rank=None if measured.evidence.rank is None else rank)
    if measured.outcome is not Outcome.OK or not measured.step_seconds:
        return replace(measured, kind=Kind.SHADOW, evidence=evidence, notes=_notes(plan, rank, measured))
    time = _step_parts(measured.step_seconds, measured.time, plan)
    step_seconds = sum(time.values())
    return Measurement(
        plan_id=plan.id, kind=Kind.SHADOW, outcome=Outcome.OK, evidence=evidence,
        step_seconds=step_seconds,
        step_seconds_spread=measured.step_seconds_spread,
        steps_measured=measured.steps_measured,
        warmup_steps=measured.warmup_steps,
        tokens_per_second=plan.workload.tokens_per_step / step_seconds,
        mfu=plan.estimate.mfu * plan.estimate.step_seconds / step_seconds if plan.estimate.step_seconds > 0 else None,
        peak_memory_bytes=measured.peak_memory_bytes,
        peak_reserved_bytes=measured.peak_reserved_bytes,
        peak_moments=measured.peak_moments,
        profiled_step_seconds=step_seconds,
        time=time,
        traffic=tuple(replace(row, seconds=0.0, exposed_seconds=0.0) for row in measured.traffic if row.calls),
        wall_seconds=measured.wall_seconds,
        versions=measured.versions,
        notes=_notes(plan, rank, measured),
    )  # fmt: skip


def _step_parts(step_seconds: float, profiled: Mapping[str, float] | None, plan: Plan) -> dict[str, float]:
    """Seconds of a step by part: a rank's own parts as measured, the others as the estimate has them."""
    profiled = profiled or {"other": step_seconds}
    stretch = step_seconds / sum(profiled.values())  # the profiler slows all parts of a step by the same factor
    own_seconds = {name: seconds * stretch for name, seconds in profiled.items() if not name.endswith(PEER_PARTS)}
    predicted = asdict(plan.estimate.time)
    computing = sum(seconds for name, seconds in predicted.items() if name not in MODELLED_PARTS)
    modelled = {name: predicted[name] for name in MODELLED_PARTS}
    modelled["bubble"] *= sum(own_seconds.values()) / computing if computing else 1.0
    return {**own_seconds, **modelled}


PEER_PARTS = ("_communication", "bubble")
"""Suffixes of the parts of a step that involve peers."""


def _notes(plan: Plan, rank: int, measured: Measurement) -> tuple[str, ...]:
    device = measured.versions.get("device", "one process on this CPU")
    ranks = plan.candidate.layout.world_size
    return (
        f"Shadow of rank {rank} of {ranks}: memory and computing are measured on {device}; what its peers add, exposed"
        " communication and bubble, is the model's.",
        *_limitations(plan, rank, measured),
    )


def _limitations(plan: Plan, rank: int, measured: Measurement) -> tuple[str, ...]:
    """Notes on how this rank differs from the rank that determines the step time."""
    layout, model = plan.candidate.layout, plan.model
    found = []
    if layout.pp > 1:
        found.append(
            f"A pipeline goes at the pace of its slowest stage; this rank has place {layout.stage_of(rank) + 1} of {layout.pp}."
        )
    if model.moe is not None and layout.ep > 1:
        found.append("Its experts get as many tokens as the rank sends: experts of other ranks may be busier.")
    return tuple(found)
