"""Settings and figures in words."""

from collections.abc import Collection, Sequence
from itertools import groupby

from strategist.contract.estimate import Estimate
from strategist.contract.knobs import Candidate, Knobs, show_value
from strategist.contract.layout import DEGREES, Layout
from strategist.contract.plan import Plan, Reason
from strategist.contract.rank_observation import Moment
from strategist.contract.sac_policy import matmul_stride
from strategist.contract.settings import SETTING_NAMES, value_of
from strategist.contract.workload import Workload
from strategist.units import GIB

AXIS_WORDS = {
    "pp": "pipeline stages",
    "dp_replicate": "replicas",
    "dp_shard": "FSDP2 shards",
    "cp": "pieces of each sequence",
    "tp": "pieces of each matmul",
}
"""Meaning of the degree of each axis."""

ARITHMETIC = (
    "compile",
    "float8",
    "float8_all_gather",
    "reduce_dtype",
    "comm_hook",
    "optimizer_in_backward",
    "async_optimizer_step",
)
"""Knobs that change neither the mesh, nor the batch, nor where state is kept."""

_PLAIN = Knobs()

IN_COLUMNS = (*(name for name in DEGREES if name != "etp"), "recompute", "saved_operations", "offload", "micro_batch")
"""Settings with a column of their own in tables."""


def gib(size: float) -> str:
    """Bytes as GiB with one decimal; small sizes keep two digits."""
    return f"{size / GIB:,.1f}" if abs(size) >= 0.1 * GIB or size == 0 else f"{size / GIB:.2g}"


def percent(share: float) -> str:
    """A share with one decimal below 10 %."""
    return f"{share:.1%}" if abs(share) < 0.0995 else f"{share:.0%}"


def counted(count: int, noun: str) -> str:
    """A number with its noun: ``1 layer``, ``2 layers``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def tokens(per_second: float) -> str:
    """Tokens per second; whole numbers from 10 on."""
    return f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.2g}"


def layer_words(layers: Sequence[int]) -> str:
    """Layers of a pipeline's ranks in short: ``23, 3 x 9``."""
    runs = [(count, len(list(run))) for count, run in groupby(layers)]
    return ", ".join(f"{repeats} x {count}" if repeats > 1 else str(count) for count, repeats in runs)


def instant_words(instant: Moment) -> str:
    """Moment of a rank's peak memory: ``backward, at layers.3``."""
    return instant.phase + (f", at {instant.module}" if instant.module else "")


def policy_words(reason: Reason) -> str:
    """A policy's reason, with its id and effect."""
    return f"{reason.policy} ({reason.effect}): {reason.text}"


def layout_words(layout: Layout) -> str:
    """The mesh in short: ``dp_shard 8`` or ``pp 2, tp 4, ep 8``; ``1 device`` without a mesh."""
    degrees = dict(layout.mesh)
    degrees |= {name: getattr(layout, name) for name in ("ep", "etp") if getattr(layout, name) > 1}
    return ", ".join(f"{name} {size}" for name, size in degrees.items()) or "1 device"


def candidate_words(candidate: Candidate, extra_knobs: Collection[str] = ()) -> str:
    """The mesh in short, with the settings in which candidates of one mesh differ (schedule, resharding, late reduction) and the
    knobs in ``extra_knobs``.
    """
    layout, knobs = candidate.layout, candidate.knobs
    parts = [layout_words(layout)]
    if layout.pp > 1 and knobs.offload != "streamed":  # which has an order of its own
        parts.append(knobs.pp_schedule + (f" x{knobs.pp_virtual_stages}" if knobs.pp_virtual_stages > 1 else ""))
    if layout.fsdp_ranks > 1 and knobs.reshard_after_forward is not True:
        resharding = "parameters kept" if knobs.reshard_after_forward is False else f"kept in groups of {knobs.reshard_group_size}"
        parts.append(resharding)
    if layout.pp == 1 and knobs.no_sync:
        parts.append("reduced once a step")
    return ", ".join([*parts, *(f"{name} {show_value(getattr(knobs, name))}" for name in extra_knobs)])


def tokens_range(estimate: Estimate) -> tuple[float, float]:
    """Lowest and highest tokens/s of the 90 % interval."""
    low, high = estimate.step_seconds_range or (estimate.step_seconds, estimate.step_seconds)
    step_tokens = estimate.tokens_per_second * estimate.step_seconds
    return step_tokens / high, step_tokens / low


def differing(plans: Sequence[Plan]) -> list[str]:
    """For each plan, the settings in which it differs from plans with equal columns; empty if there is no such plan."""
    column_values = [tuple(value_of(plan.candidate, name) for name in IN_COLUMNS) for plan in plans]
    same_columns = (
        [other for other, values in zip(plans, column_values, strict=True) if values == plan_values]
        for plan_values in column_values
    )
    return [_differing_settings(plan, others) for plan, others in zip(plans, same_columns, strict=True)]


def _differing_settings(plan: Plan, others: Sequence[Plan]) -> str:
    names = [name for name in SETTING_NAMES if len({value_of(other.candidate, name) for other in others}) > 1]
    return ", ".join(f"{name} {show_value(value_of(plan.candidate, name))}" for name in names)


def recompute_words(knobs: Knobs) -> str:
    """Mode of recomputation; ``selective/2`` if only every second matmul is saved, ``/0`` if none is."""
    stride = matmul_stride(knobs.saved_operations)
    return f"selective/{stride}" if knobs.recompute == "selective" and stride != 1 else knobs.recompute


def batch_words(candidate: Candidate, workload: Workload) -> str:
    """Micro-batch x accumulation."""
    return f"{candidate.knobs.micro_batch}x{candidate.accumulation(workload)}"


def change_words(plan: Plan) -> str:
    """A plan on one line: its mesh, and every setting that is not default."""
    knobs = plan.candidate.knobs
    parts = [candidate_words(plan.candidate), f"micro-batch {batch_words(plan.candidate, plan.workload)}"]
    parts += [f"recompute {recompute_words(knobs)}"] if knobs.recompute != "none" else []
    parts += [f"offload {knobs.offload}"] if knobs.offload != "none" else []
    parts += ["activations on the host"] if knobs.activation_offload else []
    parts += ["loss in chunks"] if knobs.chunked_loss else []
    parts += ["experts' exchanges overlapped"] if knobs.ep_overlap else []
    for name in ARITHMETIC:
        if (value := getattr(knobs, name)) != getattr(_PLAIN, name):
            parts.append(name if value is True else f"{name} {value}")
    return ", ".join(parts)
