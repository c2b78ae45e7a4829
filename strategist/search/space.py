"""Space: every legal candidate of a situation, enumerated completely; nothing is sampled."""

from collections.abc import Sequence
from functools import cache
from itertools import product
from math import inf, isqrt, prod
from typing import Any

import numpy as np

from strategist.contract.cluster import MAX_DEVICES, Cluster
from strategist.contract.knobs import (
    CHOICES,
    LOOPED,
    ROUND_BASED,
    V_SHAPED,
    ZERO_BUBBLE,
    Candidate,
    Knobs,
    KnobValue,
    least_micro_batches,
    show_value,
)
from strategist.contract.layout import DEGREES, Layout
from strategist.contract.model import ModelShape
from strategist.contract.sac_policy import SAVED_OPERATIONS
from strategist.contract.settings import AXIS_ORDER, AXIS_ORDERS, with_settings
from strategist.contract.workload import Workload
from strategist.errors import InputError
from strategist.expr.columns import Array
from strategist.search.blocks import BLOCK_NAMES, LAYOUT_NAMES, Grid, Grids, Space, large_losses
from strategist.search.knob_grid import grid_of, traits_of
from strategist.search.space_constraints import KnobSettings, SpaceConstraints, Values

MAX_MICRO_BATCH = 64
VIRTUAL_STAGES = {2: inf, 4: inf, 8: 4.0}
"""Searched stages per rank of looped schedules, each below a number of micro-batches per pipeline rank. The bubble of v stages and
m micro-batches is (pp - 1) / (v m) of the work (arXiv 2104.04473, section 2.2): from 4 pp on, eight stages gain less than 1/32.
"""
SEARCHED_SAVED_OPERATIONS = SAVED_OPERATIONS[:2]
"""Sets of saved operations that selective recomputation is searched with; the other sets are used only when fixed."""

_DEFAULTS = Knobs()


def space(
    model: ModelShape,
    cluster: Cluster,
    workload: Workload,
    constraints: SpaceConstraints,
    grids: Grids | None = None,
    shared: Array | None = None,
) -> Space:
    """All legal candidates in a fixed order; their columns are not materialised yet.

    Args:
        grids: grids of another space with equal model, constraints, precision and train mode; new ones are added.
        shared: ``layout_blocks`` of the situation, if they are known already.

    Raises:
        InputError: the situation, or what is fixed, leaves no legal candidate.
    """
    grids = {} if grids is None else grids
    counts = layout_blocks(model, cluster, workload, constraints) if shared is None else shared
    chunked = large_losses(counts, model, cluster, workload) | ("chunked_loss" in constraints.fix)
    kinds, examples, grid = np.unique(_kinds(counts, model, cluster, constraints, chunked), return_index=True, return_inverse=True)
    for kind, block in zip(kinds.tolist(), examples.tolist(), strict=True):
        if kind not in grids:
            at = dict(zip(BLOCK_NAMES, counts[:, block].tolist(), strict=True))
            layout = Layout(**{name: at[name] for name in DEGREES})
            grids[kind] = _grid_of(layout, at["accumulation"], model, workload, cluster, constraints, chunked=bool(chunked[block]))
    whole = Space(counts=counts, grid=grid, grids=tuple(grids[kind] for kind in kinds.tolist()))
    legal = whole if whole.rows.all() else whole.take(whole.rows > 0)
    if not len(legal):
        raise _nothing_legal(model, cluster, workload, constraints)
    return legal


def layout_blocks(model: ModelShape, cluster: Cluster, workload: Workload, constraints: SpaceConstraints) -> Array:
    """Legal layouts with their micro-batches, as the ``counts`` of a Space. They do not depend on the other knobs, nor on what may
    change convergence.
    """
    columns: Any = _degrees(model, cluster, workload, constraints)
    legal = Layout(**dict(zip(DEGREES, columns, strict=True)))  # what follows from degrees is computed for whole columns alike
    degrees = np.stack([getattr(legal, name) for name in LAYOUT_NAMES])
    sequences = workload.global_batch // degrees[LAYOUT_NAMES.index("data_ranks")]
    sizes = {each: _micro_batches(each, constraints) for each in set(sequences.tolist())}
    micro_batch = np.array([size for each in sequences.tolist() for size in sizes[each]], dtype=np.int64)
    layout = np.repeat(np.arange(len(sequences)), [len(sizes[each]) for each in sequences.tolist()])
    return np.vstack([degrees.take(layout, axis=1), micro_batch, sequences[layout] // micro_batch])


def _degrees(model: ModelShape, cluster: Cluster, workload: Workload, constraints: SpaceConstraints) -> Array:
    """Degrees of the legal layouts over all devices: ``DEGREES`` x layouts. ``etp`` is 1 or ``tp``: experts are split by tp
    completely or not at all.

    A layout is legal if it is without ``ep`` and ``etp``, and if these keep the laws of experts. Neither depends on how data ranks
    are divided between shards and replicas, so that few layouts are asked.
    """

    def open_degrees(name: str, devices: int) -> list[int]:
        return [int(value) for value in constraints.values(name, tuple(_divisors(devices)))]

    experts: dict[tuple[int, int], list[tuple[int, int]]] = {}
    found: list[tuple[int, ...]] = []
    for pp in open_degrees("pp", cluster.devices):
        for tp in open_degrees("tp", cluster.devices // pp):
            for cp in open_degrees("cp", cluster.devices // pp // tp):
                rest = cluster.devices // pp // tp // cp
                if any(Layout(pp=pp, tp=tp, cp=cp, dp_shard=rest).violations(model, workload, cluster.devices)):
                    continue
                for dp_shard in open_degrees("dp_shard", rest):
                    if not constraints.values("dp_replicate", (rest // dp_shard,)):
                        continue
                    ranks = dp_shard * cp
                    if (ranks, tp) not in experts:
                        experts[ranks, tp] = _expert_degrees(model, ranks, tp, constraints)
                    found += [(pp, rest // dp_shard, dp_shard, cp, tp, ep, etp) for ep, etp in experts[ranks, tp]]
    return np.array(found, dtype=np.int64).reshape(-1, len(DEGREES)).T


def _expert_degrees(model: ModelShape, fsdp_ranks: int, tp: int, constraints: SpaceConstraints) -> list[tuple[int, int]]:
    """Legal pairs of ``ep`` and ``etp``."""
    ranks, experts = fsdp_ranks * tp, model.moe.experts if model.moe else 1
    eps = constraints.values("ep", tuple(ep for ep in _divisors(ranks) if experts % ep == 0))
    etps = constraints.values("etp", (1, tp) if tp > 1 and model.moe else (1,))
    split = [Layout(dp_shard=fsdp_ranks, tp=tp, ep=int(ep), etp=int(etp)) for ep, etp in product(eps, etps)]
    return [(layout.ep, layout.etp) for layout in split if not any(layout.expert_violations(model))]


def _micro_batches(sequences: int, constraints: SpaceConstraints) -> list[int]:
    limit = max(MAX_MICRO_BATCH, int(constraints.fix.get("micro_batch", 1)))
    return [int(value) for value in constraints.values("micro_batch", tuple(v for v in _divisors(sequences) if v <= limit))]


def _kinds(counts: Array, model: ModelShape, cluster: Cluster, constraints: SpaceConstraints, chunked: Array) -> Array:
    """A number for each block; blocks of equal number have equal grids, also in spaces of other sizes."""
    at = dict(zip(BLOCK_NAMES, counts, strict=True))
    pp, whole, times = at["pp"], at["fsdp_ranks"], at["accumulation"]
    groups = np.zeros(int(whole.max(initial=0)) + 1, dtype=np.int64)
    for ranks in np.flatnonzero(np.bincount(whole)).tolist():
        sizes = _subgroups(ranks, cluster, constraints)
        groups[ranks] = ranks if len(sizes) > 1 else sum(sizes)  # a fixed size allows several, which the number of ranks determines
    alone = at["dp_replicate"] == at["world_size"]
    parts = [
        (pp > 1, 2), (pp == at["world_size"], 2), (whole > 1, 2), (at["tp"] > 1, 2), (model.vocab_size % at["tp"] > 0, 2),
        ((pp > 1) & (at["dp_replicate"] > 1) & (cluster.nodes > 1), 2), (at["data_ranks"] * at["cp"] > 1, 2),
        (("comm_hook" in constraints.open) & alone, 2), (("optimizer_in_backward" in constraints.open) & (at["ep"] > 1), 2),
        (chunked, 2), (constraints.is_offered("ep_overlap") & (at["ep"] > 1), 2),
        (times > 1, 2), (times >= pp, 2), (times >= 2 * pp, 2), (times % np.maximum(1, times // pp) > 0, 2),
        (sum(each.astype(np.int64) for each in _virtual_stages(pp, times, model, constraints).values()), len(VIRTUAL_STAGES) + 1),
        (np.where(at["tp"] * at["ep"] > 1, 0, groups[whole]), MAX_DEVICES + 1),
    ]  # fmt: skip
    kind = np.zeros(counts.shape[1], dtype=np.int64)
    for part, values in parts:
        kind = kind * values + part
    return kind


def _grid_of(
    layout: Layout,
    times: int,
    model: ModelShape,
    workload: Workload,
    cluster: Cluster,
    constraints: SpaceConstraints,
    *,
    chunked: bool,
) -> Grid:
    """Legal combinations of knobs of one kind of block; none if a fixed setting is impossible there."""
    knobs: list[Sequence[KnobSettings]] = [
        _axis_orders(layout, cluster, constraints),
        _reshardings(layout, cluster, constraints),
        _recomputations(constraints),
        _schedules(layout, model, times, constraints),
        [{"chunked_loss": value} for value in constraints.values("chunked_loss", (False, True) if chunked else (False,))],
        *_simple_knobs(layout, model, workload, times, constraints),
    ]
    return (
        grid_of(traits_of(layout, times), tuple(tuple(tuple(row.items()) for row in part) for part in knobs)) if all(knobs) else {}
    )


def _axis_orders(layout: Layout, cluster: Cluster, constraints: SpaceConstraints) -> list[KnobSettings]:
    """Orders of the mesh axes; there is a choice only if pipelines and replicas both exist and the cluster has several nodes."""
    both = layout.pp > 1 and layout.dp_replicate > 1 and cluster.nodes > 1
    return [{AXIS_ORDER: order} for order in constraints.values(AXIS_ORDER, AXIS_ORDERS if both else AXIS_ORDERS[:1])]


def _recomputations(constraints: SpaceConstraints) -> list[KnobSettings]:
    """Modes of recomputation. The compiler's memory budget keeps its default unless fixed; selective recomputation is searched
    with all matmuls saved and with every second one.
    """
    percent, plain = _DEFAULTS.recompute_budget_percent, (_DEFAULTS.saved_operations,)
    shares = constraints.values("recompute_budget_percent", (int(constraints.fix.get("recompute_budget_percent", percent)),))
    saved = {how: SEARCHED_SAVED_OPERATIONS if how == "selective" else plain for how in CHOICES["recompute"]}
    if "saved_operations" in constraints.fix:
        saved = dict.fromkeys(CHOICES["recompute"], (str(constraints.fix["saved_operations"]),))
    return [
        {"recompute": how, "recompute_budget_percent": share, "saved_operations": kept}
        for how in constraints.values("recompute", CHOICES["recompute"])
        for share in shares
        for kept in constraints.values("saved_operations", saved[how])
    ]


def _reshardings(layout: Layout, cluster: Cluster, constraints: SpaceConstraints) -> list[dict[str, KnobValue]]:
    """Values of reshard_after_forward; only the default where parameters are not sharded."""
    sharded = layout.fsdp_ranks > 1 or layout.tp > 1
    values = constraints.values("reshard_after_forward", CHOICES["reshard_after_forward"] if sharded else (True,))
    found: list[dict[str, KnobValue]] = []
    for value in values:
        if value == "subgroup":
            whole = layout.fsdp_ranks if layout.tp * layout.ep == 1 else 1
            sizes = constraints.values("reshard_group_size", _subgroups(whole, cluster, constraints))
            found += [{"reshard_after_forward": value, "reshard_group_size": size} for size in sizes]
        elif constraints.values("reshard_group_size", (1,)):
            found.append({"reshard_after_forward": value, "reshard_group_size": 1})
    return found


def _subgroups(whole: int, cluster: Cluster, constraints: SpaceConstraints) -> tuple[int, ...]:
    """Sizes of the group within which parameters stay gathered, of ``whole`` ranks: the ranks inside a node, or half of all ranks;
    every divisor if the size is fixed.
    """
    if whole == 1:
        return ()
    inside = min(cluster.gpus_per_node, whole // 2)
    return tuple(d for d in _divisors(whole) if 1 < d < whole and (d == inside or "reshard_group_size" in constraints.fix))


def _virtual_stages(pp: Any, accumulation: Any, model: ModelShape, constraints: SpaceConstraints) -> dict[int, Any]:
    """Whether each number of stages per rank of a looped schedule is searched, for blocks or for one of them: the fixed number, or
    those that are worth searching.
    """
    fixed = constraints.fix.get("pp_virtual_stages")
    limits = {fixed: inf} if type(fixed) is int and fixed > 1 else VIRTUAL_STAGES
    return {v: (pp * v <= model.layers) & (accumulation < most * pp) for v, most in limits.items()}


def _schedules(layout: Layout, model: ModelShape, accumulation: int, constraints: SpaceConstraints) -> list[dict[str, KnobValue]]:
    if layout.pp == 1:
        pairs = [("1f1b", 1)]
    else:
        whole_rounds = accumulation >= layout.pp and accumulation % max(1, accumulation // layout.pp) == 0
        pairs = [
            (schedule, stages)
            for schedule in map(str, CHOICES["pp_schedule"])
            for stages in _stages_of(schedule, layout, model, accumulation, constraints)
            if accumulation >= least_micro_batches(schedule, layout.pp) and (whole_rounds or schedule not in ROUND_BASED)
        ]
    return [
        {"pp_schedule": schedule, "pp_virtual_stages": v}
        for schedule, v in pairs
        if constraints.values("pp_schedule", (schedule,)) and constraints.values("pp_virtual_stages", (v,))
    ]


def _stages_of(
    schedule: str, layout: Layout, model: ModelShape, accumulation: int, constraints: SpaceConstraints
) -> tuple[int, ...]:
    """Possible numbers of stages per rank under a schedule."""
    if schedule in LOOPED:
        return tuple(v for v, searched in _virtual_stages(layout.pp, accumulation, model, constraints).items() if searched)
    if schedule in V_SHAPED:
        return tuple(v for v in (2,) if layout.pp * v <= model.layers)
    return (1,)


def _simple_knobs(
    layout: Layout, model: ModelShape, workload: Workload, accumulation: int, constraints: SpaceConstraints
) -> list[list[KnobSettings]]:
    """Open values of each knob that combines freely with the others; a single value where the knob has no effect."""
    eight_bits = workload.precision == "bf16" and workload.train == "full"
    plain = layout.dp_replicate == layout.world_size > 1
    streamed = layout.pp == layout.world_size
    exchanges = layout.data_ranks * layout.cp > 1
    open_values: dict[str, Values] = {
        "sequence_parallel": (False, True) if layout.tp > 1 else (False,),
        "loss_parallel": (False, True) if layout.tp > 1 and model.vocab_size % layout.tp == 0 else (False,),
        "reduce_dtype": CHOICES["reduce_dtype"],
        "no_sync": _no_sync(layout, accumulation, exchanges=exchanges),
        "offload": CHOICES["offload"],
        "compile": CHOICES["compile"],
        "float8": CHOICES["float8"] if eight_bits else ("none",),
        "float8_all_gather": (False, True) if eight_bits and layout.fsdp_ranks > 1 and "float8" in constraints.open else (False,),
        "comm_hook": CHOICES["comm_hook"] if plain else ("none",),
        "optimizer_in_backward": (False, True) if layout.pp == layout.ep == 1 or streamed else (False,),
        "async_optimizer_step": (False, True) if streamed and "async_optimizer_step" in constraints.open else (False,),
        "activation_offload": (False, True) if "activation_offload" in constraints.open else (False,),
        "ep_overlap": (False, True) if layout.ep > 1 and accumulation > 1 and constraints.is_offered("ep_overlap") else (False,),
    }
    return [[{name: value} for value in constraints.values(name, values)] for name, values in open_values.items()]


def _no_sync(layout: Layout, accumulation: int, *, exchanges: bool) -> Values:
    if layout.pp > 1:
        return (True,) if exchanges else (False, True)
    return (False, True) if exchanges and accumulation > 1 else (False,)


@cache
def _divisors(number: int) -> list[int]:
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return small + [number // d for d in reversed(small) if d * d != number]


def _nothing_legal(model: ModelShape, cluster: Cluster, workload: Workload, constraints: SpaceConstraints) -> InputError:
    fixed = "".join(f" --fix {name}={show_value(value)}" for name, value in constraints.fix.items())
    value = f"--gpus {cluster.name}{fixed}"
    law = _law(model, cluster, workload, constraints)
    if law and "global_batch" not in law:
        return InputError(value, law, "change what is fixed, or leave it out: strategist plan chooses one")
    law = law or (
        f"no layout of {cluster.devices} devices keeps every law"
        + (f" on {constraints.backend.name}" if constraints.backend.limits else "")
    )
    value += f" --global-batch {workload.global_batch}"
    return InputError(value, law, "take a global batch that the devices divide, or fix less")


def _law(model: ModelShape, cluster: Cluster, workload: Workload, constraints: SpaceConstraints) -> str:
    """The first law that the fixed settings break while everything else has its plainest value; empty if they break none."""
    degrees: dict[str, Any] = {name: int(constraints.fix[name]) for name in DEGREES if name in constraints.fix}
    taken = prod(degree for name, degree in degrees.items() if name not in ("ep", "etp"))
    if cluster.devices % taken:
        product = " x ".join(f"{name} {degree}" for name, degree in degrees.items() if name not in ("ep", "etp"))
        return f"{product}{f' = {taken}' if ' x ' in product else ''} must divide the {cluster.devices} devices"
    free = next((name for name in ("dp_shard", "dp_replicate") if name not in degrees), "dp_shard")
    if constraints.fix.get("ep_overlap") and model.moe and "ep" not in degrees:
        degrees["ep"] = min(2, cluster.devices // taken)
    layout = Layout(**{free: cluster.devices // taken, **degrees})
    tensor, piped, schedule = layout.tp > 1, layout.pp > 1, constraints.fix.get("pp_schedule")
    plain = Knobs(
        sequence_parallel=tensor,
        loss_parallel=tensor,
        no_sync=piped,
        pp_virtual_stages=2 if schedule in (*LOOPED, *V_SHAPED) else 1,
        reshard_after_forward=schedule not in ZERO_BUBBLE,
    )
    broken = with_settings(Candidate(layout=layout, knobs=plain), constraints.fix).violations(model, workload, cluster.devices)
    return next((law for law in broken if any(name in law for name in constraints.fix)), "")
