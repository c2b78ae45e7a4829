"""The search space: complete, legal, ordered and limited as requested. ``Candidate.violations`` is the reference."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from contract.samples import CLUSTER, MODEL, MOE

from strategist.contract.cluster import Cluster
from strategist.contract.knobs import CHOICES, CONVERGENCE_KNOBS, Candidate, Knobs, show_value
from strategist.contract.layout import DEGREES, Layout
from strategist.contract.model import ModelShape
from strategist.contract.settings import AXIS_ORDERS, PARTS, with_settings
from strategist.contract.workload import Workload
from strategist.errors import InputError
from strategist.expr.columns import Columns
from strategist.profiles.cluster import resolve_cluster
from strategist.profiles.models import resolve_model
from strategist.programs.backends import load_backend
from strategist.rules.backend import Backend
from strategist.search.blocks import Grids
from strategist.search.candidate_tables import block_table, candidate_table
from strategist.search.rank import candidate
from strategist.search.space import SEARCHED_SAVED_OPERATIONS, VIRTUAL_STAGES, layout_blocks, space
from strategist.search.space_constraints import SpaceConstraints

EXPERTS = replace(MODEL, name="experts", moe=MOE)
SMALL = Workload(seq_len=64, global_batch=8)


def cluster(nodes: int, gpus_per_node: int) -> Cluster:
    return replace(CLUSTER, nodes=nodes, gpus_per_node=gpus_per_node)


def candidates(model: ModelShape, on: Cluster, workload: Workload, constraints: SpaceConstraints | None = None) -> list[Candidate]:
    table = candidate_table(space(model, on, workload, constraints or SpaceConstraints()))
    layouts, knobs = (
        zip(*(_decoded(table, f"{part}.{name}") for name in PARTS[part]), strict=True) for part in ("layout", "knobs")
    )
    return [Candidate(layout=_layout(*places), knobs=_knobs(*values)) for places, values in zip(layouts, knobs, strict=True)]


@cache
def _layout(*values: Any) -> Layout:
    one = Candidate(layout=Layout(), knobs=Knobs())
    return with_settings(one, dict(zip(PARTS["layout"], values, strict=True))).layout


@cache
def _knobs(*values: Any) -> Knobs:
    return Knobs(**dict(zip(PARTS["knobs"], values, strict=True)))


def _decoded(table: Columns, name: str) -> list[Any]:
    """A column as plain values. Whole columns are decoded in a tenth of the time of single candidates."""
    values, choices = table.values[name].tolist(), table.categories.get(name)
    return values if choices is None else [choices[value] for value in values]


def values_of(name: str, model: ModelShape, on: Cluster, workload: Workload, constraints: SpaceConstraints) -> set[Any]:
    """The values of one setting among all candidates."""
    table = candidate_table(space(model, on, workload, constraints))
    values = {value.item() for value in np.unique(table.values[name])}
    return {table.categories[name][value] for value in values} if name in table.categories else values


UNCOMPILED = Backend(name="uncompiled", limits={"knobs.compile": (False,), "knobs.loss_parallel": (False,)})


@cache
def on_four() -> list[Candidate]:
    """The candidates of the dense model on four devices without two knobs that do not depend on offload."""
    return candidates(MODEL, cluster(1, 4), SMALL, SpaceConstraints(backend=UNCOMPILED))


SITUATIONS = {
    "one device": ("8b", "1x80GB", Workload(), SpaceConstraints()),
    "six devices": ("8b", "6x24GB", Workload(global_batch=24), SpaceConstraints()),
    "experts over two nodes": ("mixtral-8x7b", "2x4xH100", Workload(global_batch=16), SpaceConstraints()),
    "three nodes": ("70b", "3x8x80GB", Workload(global_batch=48, train="qlora"), SpaceConstraints()),
    "a size without factors": ("8b", "5x24GB", Workload(global_batch=10), SpaceConstraints()),
    "all allowed": ("32b", "8x24GB", Workload(global_batch=12), SpaceConstraints(allow=("reduce_dtype",))),
    "streamed": ("32b", "8x24GB", Workload(), SpaceConstraints(fix={"offload": "streamed"})),
    "native": ("tiny", "4xcpu", Workload(seq_len=128, global_batch=16), SpaceConstraints(backend=load_backend("native"))),
    "fixed": ("8b", "8x24GB", Workload(global_batch=48), SpaceConstraints(fix={"micro_batch": 3, "reshard_group_size": 2})),
}


def test_taking_rows_of_a_block_column_does_not_copy_the_whole_column() -> None:
    columns = space(EXPERTS, cluster(2, 4), SMALL, SpaceConstraints()).columns
    assert all(column.flags.c_contiguous for column in columns.values())  # NumPy's take copies a column with strides first


def test_eight_stages_a_rank_are_searched_where_few_micro_batches_leave_a_bubble() -> None:
    def micro_batches(stages: int, **fix: int) -> set[int]:
        constraints = SpaceConstraints(fix={"pp": 4, **fix})
        table = candidate_table(space(resolve_model("8b").shape, cluster(1, 8), Workload(seq_len=64, global_batch=64), constraints))
        return set(table.values["knobs.accumulation"][table.values["knobs.pp_virtual_stages"] == stages].tolist())

    assert micro_batches(8) == {number for number in micro_batches(4) if number < 16} == {1, 2, 4, 8}
    assert micro_batches(8, pp_virtual_stages=8) == micro_batches(4)


@pytest.mark.parametrize(("model", "gpus", "workload", "constraints"), SITUATIONS.values(), ids=list(SITUATIONS))
def test_every_candidate_is_legal(model: str, gpus: str, workload: Workload, constraints: SpaceConstraints) -> None:
    shape, on = resolve_model(model).shape, resolve_cluster(gpus)
    table = candidate_table(space(shape, on, workload, constraints))
    for row in range(0, table.rows, max(1, table.rows // 500)):
        one, values = candidate(table, row), table.row(row)
        assert one.violations(shape, workload, on.devices) == ()
        assert one.accumulation(workload) == values["knobs.accumulation"]
        assert one.layout.model_shards == values["layout.model_shards"]
        assert one.layout.fsdp_ranks == values["layout.fsdp_ranks"]
        settings = {**vars(one.layout), **vars(one.knobs)}
        assert constraints.fix.items() <= settings.items()


def layouts_of(devices: int, moe: bool) -> Iterator[Layout]:
    """Every layout whose degrees divide the number of devices, legal or not."""
    numbers = [number for number in range(1, devices + 1) if devices % number == 0]
    for pp, replicate, shard, cp, tp in product(numbers, repeat=5):
        if pp * replicate * shard * cp * tp == devices:
            for ep, etp in product(numbers, numbers) if moe else [(1, 1)]:
                yield Layout(pp=pp, dp_replicate=replicate, dp_shard=shard, cp=cp, tp=tp, ep=ep, etp=etp)


def redundant(one: Candidate, model: ModelShape, workload: Workload, on: Cluster) -> bool:
    """Whether a knob without effect has a value other than its default: such a candidate duplicates another. A chunked loss has an
    effect if it has several chunks and a whole loss takes over an eighth of a device.
    """
    layout, knobs, times = one.layout, one.knobs, one.accumulation(workload)
    exchanges = layout.data_ranks * layout.cp > 1
    inside = min(on.gpus_per_node, layout.fsdp_ranks // 2)
    tokens = knobs.micro_batch * workload.seq_len // layout.cp
    loss_bytes = 12 * tokens * model.vocab_size // layout.tp
    chunks_help = 2 * tokens > model.hidden_size and 8 * loss_bytes > on.device.usable_memory_bytes
    return any((
        knobs.reshard_after_forward is not True and layout.fsdp_ranks == layout.tp == 1,
        knobs.reshard_group_size != (inside if knobs.reshard_after_forward == "subgroup" else 1),
        layout.pp == 1 and knobs.pp_schedule != "1f1b",
        layout.pp == 1 and knobs.no_sync and (not exchanges or times == 1),
        layout.pp > 1 and not exchanges and knobs.no_sync != (knobs.offload == "all"),
        knobs.offload == "streamed" and knobs.no_sync,
        knobs.offload == "streamed" and layout.pp > 1 and knobs.pp_schedule != "gpipe",
        knobs.reduce_dtype != "fp32",
        knobs.chunked_loss and not chunks_help,
        knobs.recompute != "selective" and knobs.saved_operations != "matmul+attention",
    ))  # fmt: skip


CUTS = {
    "schedules": {
        "knobs.micro_batch": (1, 2), "knobs.offload": ("none", "all"), "knobs.recompute": ("selective", "budget"),
        "knobs.loss_parallel": (False,), "knobs.reshard_after_forward": (True,),
    },
    "memory": {
        "knobs.micro_batch": (1, 2), "knobs.pp_schedule": ("gpipe", "1f1b"), "knobs.compile": (False,), "layout.tp": (1, 2),
    },
    "memory, one micro-batch": {
        "knobs.micro_batch": (2,), "knobs.pp_schedule": ("gpipe", "1f1b"), "knobs.compile": (False,), "layout.tp": (1, 2),
    },
    "layouts": {
        "knobs.micro_batch": (1, 2, 4, 8), "knobs.offload": ("none",), "knobs.recompute": ("none",), "knobs.compile": (False,),
        "knobs.pp_schedule": ("1f1b",), "knobs.loss_parallel": (False,), "knobs.reshard_after_forward": (True,),
        "knobs.ep_overlap": (False, True),
    },
}  # fmt: skip
"""Parts of the space that can be enumerated by brute force. With two samples each, one micro-batch is a step on four devices, and
several on fewer.
"""


@pytest.mark.parametrize(
    ("model", "nodes", "limits_name"),
    [
        (MODEL, 2, "schedules"),
        (MODEL, 1, "memory, one micro-batch"),
        (EXPERTS, 1, "layouts"),
        *(pytest.param(MODEL, *rest, marks=pytest.mark.full) for rest in ((1, "schedules"), (1, "memory"), (2, "memory"))),
        *(pytest.param(EXPERTS, *rest, marks=pytest.mark.full) for rest in product((1, 2), ("schedules", "memory"))),
    ],
)
def test_the_space_contains_every_legal_candidate_exactly_once(model: ModelShape, nodes: int, limits_name: str) -> None:
    on = cluster(nodes, 4 // nodes)
    backend = Backend(name=limits_name, limits=CUTS[limits_name])
    grid = dict(CHOICES) | {"micro_batch": (1, 2, 4, 8), "reshard_group_size": (1,), "pp_virtual_stages": (1, *VIRTUAL_STAGES)}
    every = (
        Candidate(layout=layout, knobs=Knobs(**dict(zip(grid, row, strict=True))))
        for layout in layouts_of(4, model.moe is not None)
        if backend.allows("layout.tp", layout.tp) and not any(layout.violations(model, SMALL, 4))
        for row in product(*(_searched_values(name, values, layout, backend, on) for name, values in grid.items()))
    )
    legal = {one for one in every if not redundant(one, model, SMALL, on) and not one.violations(model, SMALL, 4)}
    both = [one for one in legal if one.layout.pp > 1 and one.layout.dp_replicate > 1 and nodes > 1]
    legal |= {with_settings(one, {"axis_order": AXIS_ORDERS[1]}) for one in both}
    found = candidates(model, on, SMALL, SpaceConstraints(backend=backend))
    assert len(set(found)) == len(found)
    assert set(found) == legal


@pytest.mark.parametrize("model", [MODEL, EXPERTS], ids=["dense", "experts"])
def test_the_layouts_are_those_that_keep_every_law(model: ModelShape) -> None:
    on, workload = cluster(3, 8), Workload(seq_len=192, global_batch=24)
    blocks = layout_blocks(model, on, workload, SpaceConstraints(fix={"micro_batch": 1}))
    found = list(map(tuple, blocks[: len(DEGREES)].T.tolist()))
    legal = [layout for layout in layouts_of(24, model.moe is not None) if not any(layout.violations(model, workload, 24))]
    assert len(set(found)) == len(found) == len(legal) > 100
    assert set(found) == {tuple(getattr(layout, name) for name in DEGREES) for layout in legal}


def _searched_values(name: str, values: tuple[Any, ...], layout: Layout, backend: Backend, on: Cluster) -> tuple[Any, ...]:
    """Values to enumerate here: without settings that change convergence, are searched only if fixed, or need tp or pp, and without
    redundant ones.
    """
    subgroups = backend.allows("knobs.reshard_after_forward", "subgroup")
    inside = max(1, min(on.gpus_per_node, layout.fsdp_ranks // 2)) if subgroups else 1
    closed = {
        **{knob: (neutral,) for knob, neutral in CONVERGENCE_KNOBS.items()},
        "float8_all_gather": (False,),
        "saved_operations": SEARCHED_SAVED_OPERATIONS,
        "reshard_group_size": tuple({1, inside}),
        "activation_offload": (False,),
        "ep_overlap": backend.limits.get("knobs.ep_overlap", (False,)),
    }
    if layout.tp == 1:
        closed |= {"sequence_parallel": (False,), "loss_parallel": (False,)}
    if layout.fsdp_ranks == layout.tp == 1:
        closed |= {"reshard_after_forward": (True,)}
    if layout.pp == 1:
        closed |= {"pp_schedule": ("1f1b",), "pp_virtual_stages": (1,)}
    return tuple(value for value in closed.get(name, values) if backend.allows(f"knobs.{name}", value))


def test_the_enumerated_parts_have_every_value_of_every_knob() -> None:
    in_every_run = [limits for cut, limits in CUTS.items() if cut != "memory"]
    for name, values in CHOICES.items():
        open_values = {value for limits in in_every_run for value in limits.get(f"knobs.{name}", values)}
        assert open_values == set(values)


def test_the_order_of_candidates_is_deterministic() -> None:
    first, second = (candidate_table(space(EXPERTS, cluster(2, 2), SMALL, SpaceConstraints())) for _ in range(2))
    for name, column in first.values.items():
        np.testing.assert_array_equal(column, second.values[name])


def test_the_block_table_has_one_row_per_block() -> None:
    blocks = space(MODEL, cluster(1, 4), SMALL, SpaceConstraints())
    table = block_table(blocks)
    assert table.rows == len(blocks)
    every = candidate_table(blocks)
    assert np.repeat(table.values["layout.tp"], blocks.rows).tolist() == every.values["layout.tp"].tolist()
    assert blocks.candidates == every.rows


def test_some_blocks_have_their_own_candidates_and_grids() -> None:
    blocks = space(EXPERTS, cluster(2, 2), SMALL, SpaceConstraints())
    kept = blocks.columns["layout.pp"] == 2
    some, every = blocks.take(kept), candidate_table(blocks)
    found = candidate_table(some)
    assert 0 < len(some.grids) < len(blocks.grids)
    mask = np.repeat(kept, blocks.rows)
    for name, column in every.values.items():
        np.testing.assert_array_equal(found.values[name], column[mask])


def test_grids_are_shared_between_spaces_of_other_sizes() -> None:
    """A grid that another size left behind is the grid that this size would make itself."""
    for constraints in (SpaceConstraints(), SpaceConstraints(fix={"reshard_group_size": 2})):
        grids: Grids = {}
        for nodes, each in ((1, 4), (1, 8), (2, 2), (4, 4)):
            size = cluster(nodes, each)
            shared = candidate_table(space(EXPERTS, size, SMALL, constraints, grids))
            alone = candidate_table(space(EXPERTS, size, SMALL, constraints))
            for name, column in alone.values.items():
                np.testing.assert_array_equal(shared.values[name], column)


def test_knobs_that_change_convergence_vary_only_if_allowed_or_fixed() -> None:
    def types(**constraints: Any) -> set[str]:
        return values_of("knobs.reduce_dtype", MODEL, cluster(1, 2), SMALL, SpaceConstraints(**constraints))

    assert types() == {"fp32"}
    assert types(allow=("reduce_dtype",)) == {"fp32", "bf16"}
    assert types(fix={"reduce_dtype": "bf16"}) == {"bf16"}


def test_float8_needs_bf16_and_full_training() -> None:
    def types(**workload: Any) -> set[str]:
        return values_of("knobs.float8", MODEL, cluster(1, 2), replace(SMALL, **workload), SpaceConstraints(allow=("float8",)))

    assert types() == {"none", "tensorwise", "rowwise"}
    assert types(precision="fp32") == types(train="lora") == {"none"}


def test_gradient_compression_needs_ddp_replicas() -> None:
    found = candidates(MODEL, cluster(1, 2), SMALL, SpaceConstraints(allow=("comm_hook",)))
    assert {one.layout.dp_replicate for one in found if one.knobs.comm_hook != "none"} == {2}
    assert {one.knobs.comm_hook for one in found} == set(CHOICES["comm_hook"])


def test_activation_offload_is_searched_only_if_fixed() -> None:
    two, fix = cluster(1, 2), {"micro_batch": 2}
    kept = candidates(MODEL, two, SMALL, SpaceConstraints(fix=fix))
    assert not any(one.knobs.activation_offload for one in kept)
    offloaded = candidates(MODEL, two, SMALL, SpaceConstraints(fix={**fix, "activation_offload": True}))
    stays = [one for one in kept if not any(_with_activations_away(one).violations(MODEL, SMALL, 2))]
    assert offloaded == [_with_activations_away(one) for one in stays]


def test_a_chunked_loss_is_searched_where_a_whole_loss_is_large() -> None:
    """A whole loss of one sequence takes 5.9 of 78 GiB, of two more than an eighth."""
    fix: dict[str, Any] = {"dp_shard": 8, "compile": False, "offload": "none", "recompute": "full", "no_sync": False}
    workload = Workload(seq_len=4096, global_batch=32)
    found = candidates(resolve_model("8b").shape, resolve_cluster("8xH100"), workload, SpaceConstraints(fix=fix))
    searched = {(one.knobs.micro_batch, one.knobs.chunked_loss) for one in found}
    assert searched == {(1, False), (2, False), (2, True), (4, False), (4, True)}


def test_a_chunked_loss_under_tensor_parallelism_keeps_logits_sharded() -> None:
    chunked = candidates(MODEL, cluster(1, 4), SMALL, SpaceConstraints(fix={"chunked_loss": True, "tp": 2}))
    assert chunked
    assert all(one.knobs.loss_parallel for one in chunked)
    assert all(one.violations(MODEL, SMALL, 4) == () for one in chunked)


def test_overlap_of_expert_exchanges_is_legal_where_tokens_travel_and_passes_pair() -> None:
    for pp, schedules in ((1, {"1f1b"}), (2, {"interleaved_1f1b", "dual_pipe_v"})):
        fix = {"pp": pp, "micro_batch": 1, "offload": "none"}
        without, overlapped = (
            candidates(EXPERTS, cluster(1, 4), SMALL, SpaceConstraints(fix={**fix, "ep_overlap": overlap}))
            for overlap in (False, True)
        )
        assert {one.knobs.pp_schedule for one in overlapped} == schedules
        assert min(one.layout.ep for one in overlapped) == 2
        assert {replace(one, knobs=replace(one.knobs, ep_overlap=False)) for one in overlapped} < set(without)


@pytest.mark.parametrize(("backend", "searched"), [("any", {False}), ("native", {False}), ("megatron-lm", {False, True})])
def test_overlap_of_expert_exchanges_is_searched_for_back_ends_that_have_it(backend: str, searched: set[bool]) -> None:
    constraints = SpaceConstraints(fix={"pp": 1, "ep": 2, "micro_batch": 1, "offload": "none"}, backend=load_backend(backend))
    assert {one.knobs.ep_overlap for one in candidates(EXPERTS, cluster(1, 4), SMALL, constraints)} == searched


def _with_activations_away(one: Candidate) -> Candidate:
    return replace(one, knobs=replace(one.knobs, activation_offload=True))


def test_streamed_offload_uses_all_devices_as_stages_and_full_recomputation() -> None:
    streamed = [one for one in on_four() if one.knobs.offload == "streamed"]
    assert {(one.layout.pp, one.knobs.recompute, one.knobs.pp_schedule) for one in streamed} == {(4, "full", "gpipe")}


def test_streamed_stages_may_update_in_the_backward_pass_with_any_number_of_micro_batches() -> None:
    in_backward = candidates(
        MODEL, cluster(1, 4), SMALL,
        SpaceConstraints(fix={"optimizer_in_backward": True, "offload": "streamed"}, allow=("async_optimizer_step",)),
    )  # fmt: skip
    assert {one.accumulation(SMALL) for one in in_backward} >= {1, 2, 4}
    assert not any(one.violations(MODEL, SMALL, 4) for one in in_backward)


def test_host_updates_in_the_backward_pass_allow_any_number_of_micro_batches() -> None:
    in_backward = candidates(
        MODEL, cluster(1, 4), SMALL,
        SpaceConstraints(fix={"optimizer_in_backward": True, "recompute": "full"}, backend=UNCOMPILED),
    )  # fmt: skip
    times = {
        offload: {one.accumulation(SMALL) for one in in_backward if one.knobs.offload == offload} for offload in CHOICES["offload"]
    }
    assert times["none"] == {1}
    assert times["optimizer"] == times["all"] >= {1, 2, 4}
    assert {one.layout.pp for one in in_backward if one.knobs.offload != "streamed"} == {1}
    later = [one for one in on_four() if one.layout.pp == 1 and one.knobs.recompute == "full"]
    legal = [replace(one, knobs=replace(one.knobs, optimizer_in_backward=True)) for one in later]
    legal = [one for one in legal if not one.violations(MODEL, SMALL, 4)]
    assert [one for one in in_backward if one.layout.pp == 1] == legal


FIXED: tuple[dict[str, Any], ...] = (
    *({axis: 2} for axis in ("pp", "dp_replicate", "dp_shard", "cp", "tp", "ep")),
    {"etp": 2, "tp": 2}, {"micro_batch": 3}, {"micro_batch": 6}, {"reshard_group_size": 2, "reshard_after_forward": "subgroup"},
    {"pp_virtual_stages": 2}, {"pp_schedule": "gpipe", "pp": 2}, {"reshard_after_forward": False}, {"recompute": "selective"},
    {"sequence_parallel": True}, {"loss_parallel": True}, {"no_sync": True}, {"offload": "optimizer"},
    {"tp": 2, "dp_shard": 2, "recompute": "full"},
)  # fmt: skip


def _settings(one: Candidate) -> dict[str, Any]:
    return {**vars(one.layout), **vars(one.knobs)}


@pytest.mark.parametrize(
    ("model", "base", "fixes"),
    [
        (MODEL, {"recompute": "none", "offload": "none"}, FIXED[4:5] + FIXED[7:8]),
        pytest.param(EXPERTS, {}, FIXED, marks=pytest.mark.full),
    ],
)
def test_fixing_a_setting_keeps_all_candidates_that_have_it(
    model: ModelShape, base: dict[str, Any], fixes: tuple[dict[str, Any], ...]
) -> None:
    workload = replace(SMALL, global_batch=12)
    whole = candidates(model, cluster(1, 4), workload, SpaceConstraints(fix=base))
    settings = [(one, _settings(one).items()) for one in whole]
    for fix in fixes:
        found = candidates(model, cluster(1, 4), workload, SpaceConstraints(fix={**base, **fix}))
        assert found, fix
        assert all(fix.items() <= _settings(one).items() for one in found), fix
        assert {one for one, values in settings if fix.items() <= values} <= set(found), fix


def test_micro_batches_above_64_are_searched_only_if_fixed() -> None:
    many = replace(SMALL, global_batch=512)
    assert max(one.knobs.micro_batch for one in candidates(MODEL, cluster(1, 1), many)) == 64
    assert {
        one.knobs.micro_batch for one in candidates(MODEL, cluster(1, 1), many, SpaceConstraints(fix={"micro_batch": 256}))
    } == {256}


@pytest.mark.parametrize(
    "fix",
    [{"tp": 3}, {"tp": 16}, {"micro_batch": 5}, {"ep": 2}, {"pp": 2, "pp_schedule": "1f1b", "pp_virtual_stages": 2},
     {"sequence_parallel": True, "tp": 1}, {"offload": "streamed", "tp": 2}, {"recompute": "some"}, {"tp": True},
     {"reshard_group_size": 3}, {"pp_virtual_stages": 64}],
    ids=lambda fix: " ".join(f"{k}={v}" for k, v in fix.items()),
)  # fmt: skip
def test_an_impossible_fixed_setting_raises_a_one_line_error(fix: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        space(MODEL, cluster(1, 4), SMALL, SpaceConstraints(fix=fix))
    text = str(caught.value)
    assert "\n" not in text
    assert all(f"{name}={show_value(value)}" in text for name, value in fix.items())


def test_an_error_names_the_setting_that_conflicts_with_a_fixed_schedule() -> None:
    fix = {"pp": 2, "pp_schedule": "zbv_zero_bubble", "recompute": "selective"}
    with pytest.raises(InputError, match="recompute must not be selective"):
        space(MODEL, cluster(1, 4), SMALL, SpaceConstraints(fix=fix))


def test_a_back_end_limits_the_space() -> None:
    limits = {"layout.pp": (1,), "knobs.offload": ("none",), "knobs.recompute": ("full", "none")}
    found = candidates(MODEL, cluster(1, 4), SMALL, SpaceConstraints(backend=Backend(name="mine", limits=limits)))
    assert {one.layout.pp for one in found} == {1}
    assert {one.knobs.offload for one in found} == {"none"}
    assert {one.knobs.recompute for one in found} == {"none", "full"}
