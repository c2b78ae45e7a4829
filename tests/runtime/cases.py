"""Plans that must train exactly like a single process: every technique, and combinations."""

from collections.abc import Iterator
from dataclasses import replace

from strategist.contract.knobs import Knobs, KnobValue
from strategist.contract.layout import Layout
from strategist.contract.model import ModelShape
from strategist.contract.options import OPTION_NAMES, Options
from strategist.contract.plan import Plan

from . import (
    cases_activations,
    cases_context,
    cases_experts,
    cases_host_updates,
    cases_lora,
    cases_loss,
    cases_models,
    cases_precision,
    cases_saved,
    cases_streaming,
)
from .plans import GROUPED, TINY, WORKLOAD, plan, two_micro_batches

MODELS = {
    "tiny": TINY,
    "grouped": GROUPED,
    "qwen": replace(TINY, name="qwen", qkv_bias=True, qk_norm=True, tied_embeddings=True, kv_heads=2),
    "qwen deep": replace(TINY, name="qwen deep", layers=5, qk_norm=True, tied_embeddings=True),
    "deep": replace(TINY, name="deep", layers=5),
    "deepest": replace(TINY, name="deepest", layers=9),
    "odd": replace(TINY, name="odd", vocab_size=63, ffn_size=50, hidden_size=36),
    "wide": replace(TINY, name="wide", ffn_size=64),
    **cases_models.MODELS,
    **cases_context.MODELS,
}
DEFAULTS: dict[str, KnobValue] = {"model": "tiny", "precision": "fp32", "optimizer": "adamw"}
LAYOUT_NAMES = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
STEPS = 3


def case(name: str, **settings: object) -> tuple[str, Plan]:
    """A named plan from settings of any kind: layout, knobs, options, workload and model."""
    chosen = {**DEFAULTS, **settings}
    layout = Layout(**{key: chosen.pop(key) for key in (*LAYOUT_NAMES, "axis_order") if key in chosen})
    options = {key: chosen.pop(key) for key in OPTION_NAMES if key in chosen}
    workload = replace(WORKLOAD, precision=chosen.pop("precision"), optimizer=chosen.pop("optimizer"))
    model: ModelShape = MODELS[str(chosen.pop("model"))]
    knobs = Knobs(**{"micro_batch": two_micro_batches(layout), **chosen})
    return name, plan(layout=layout, knobs=knobs, options=Options(**options), model=model, workload=workload)


def cases() -> Iterator[tuple[str, Plan]]:
    """All cases; the world size is the layout's."""
    yield from references()
    yield from _data_parallel()
    yield from _tensor_parallel()
    yield from _mixtures()
    yield from _bf16()
    yield from _units()
    yield from _compiled()
    yield from _pipelines()
    yield from cases_models.cases(case)
    yield from cases_lora.cases()
    yield from cases_experts.cases()
    yield from cases_streaming.cases(case)
    yield from cases_context.cases(case)
    yield from cases_precision.cases(case)
    yield from cases_activations.cases(case)
    yield from cases_host_updates.cases(case)
    yield from cases_saved.cases(case)
    yield from cases_loss.cases(case)


def _data_parallel() -> Iterator[tuple[str, Plan]]:
    yield case("ddp", dp_replicate=2)
    for no_sync in (False, True):
        several = {"micro_batch": 1, "no_sync": no_sync}
        yield case(f"ddp accumulation no_sync {no_sync}", dp_replicate=2, **several)
        yield case(f"fsdp accumulation no_sync {no_sync}", dp_shard=2, **several)
        yield case(f"hsdp accumulation no_sync {no_sync}", dp_replicate=2, dp_shard=2, **several, reshard_after_forward=False)
    yield case("ddp sgd", dp_replicate=2, optimizer="sgd")
    yield case("ddp recompute full", dp_replicate=2, recompute="full")
    yield case("ddp recompute selective", dp_replicate=2, recompute="selective", model="qwen")
    yield case("ddp 4", dp_replicate=4, micro_batch=1)
    for value in (True, False):
        yield case(f"fsdp reshard {value}", dp_shard=2, reshard_after_forward=value)
    yield case("fsdp sgd", dp_shard=2, optimizer="sgd")
    yield case("fsdp recompute full", dp_shard=2, recompute="full")
    yield case("fsdp recompute selective", dp_shard=2, recompute="selective")
    yield case("fsdp qwen", dp_shard=2, model="qwen")
    yield case("fsdp odd sizes", dp_shard=4, model="odd")
    yield case("fsdp subgroup", dp_shard=4, reshard_after_forward="subgroup", reshard_group_size=2)
    yield case("hsdp", dp_replicate=2, dp_shard=2)
    yield case("hsdp shards apart", dp_replicate=2, dp_shard=2, axis_order=("pp", "dp_shard", "dp_replicate", "cp", "tp"))


def _tensor_parallel() -> Iterator[tuple[str, Plan]]:
    for sequence in (False, True):
        for loss in (False, True):
            yield case(f"tp sequence {sequence} loss {loss}", tp=2, sequence_parallel=sequence, loss_parallel=loss)
    yield case("tp accumulation", tp=2, micro_batch=1, sequence_parallel=True, no_sync=True)
    yield case("tp recompute full", tp=2, sequence_parallel=True, loss_parallel=True, recompute="full")
    yield case("tp recompute selective", tp=2, sequence_parallel=True, loss_parallel=True, recompute="selective")
    yield case("tp qwen", tp=2, model="qwen")
    yield case("tp qwen sequence", tp=2, model="qwen", sequence_parallel=True, loss_parallel=True)
    yield case("tp grouped", tp=2, model="grouped")
    yield case("tp odd vocabulary", tp=2, model="odd", sequence_parallel=True)
    yield case("tp 4", tp=4, sequence_parallel=True, loss_parallel=True)


def _mixtures() -> Iterator[tuple[str, Plan]]:
    both = {"sequence_parallel": True, "loss_parallel": True}
    yield case("fsdp tp", dp_shard=2, tp=2)
    yield case("fsdp tp both", dp_shard=2, tp=2, **both)
    yield case("fsdp tp keep selective", dp_shard=2, tp=2, **both, reshard_after_forward=False, recompute="selective")
    yield case("fsdp tp accumulation full", dp_shard=2, tp=2, **both, micro_batch=1, recompute="full")
    yield case("fsdp tp qwen sgd", dp_shard=2, tp=2, **both, model="qwen", optimizer="sgd")
    yield case("replicate tp", dp_replicate=2, tp=2)
    yield case("replicate tp both accumulation", dp_replicate=2, tp=2, **both, micro_batch=1, no_sync=True)
    yield case("tp apart", dp_shard=2, tp=2, **both, axis_order=("tp", "pp", "dp_replicate", "dp_shard", "cp"))
    yield case("hsdp tp", dp_replicate=2, dp_shard=2, tp=2, **both)
    yield case(
        "hsdp tp qwen full",
        dp_replicate=2,
        dp_shard=2,
        tp=2,
        micro_batch=1,
        no_sync=True,
        model="qwen",
        recompute="full",
    )
    yield case("hsdp tp reversed", dp_replicate=2, dp_shard=2, tp=2, axis_order=("tp", "cp", "dp_shard", "dp_replicate", "pp"))
    yield case("hsdp subgroup", dp_replicate=2, dp_shard=4, micro_batch=1, reshard_after_forward="subgroup", reshard_group_size=2)
    yield case("fsdp 4 tp 2", dp_shard=4, tp=2, **both, recompute="selective")
    yield case("fsdp 2 tp 4", dp_shard=2, tp=4, **both, micro_batch=1)


def _bf16() -> Iterator[tuple[str, Plan]]:
    for reduce_dtype in ("fp32", "bf16"):
        common = {"precision": "bf16", "reduce_dtype": reduce_dtype}
        yield case(f"bf16 ddp reduce {reduce_dtype}", dp_replicate=2, **common)
        yield case(f"bf16 fsdp reduce {reduce_dtype}", dp_shard=2, **common, recompute="selective", micro_batch=1)
        yield case(f"bf16 fsdp tp reduce {reduce_dtype}", dp_shard=2, tp=2, **common, sequence_parallel=True, loss_parallel=True)
    yield case("bf16 tp", tp=2, precision="bf16", micro_batch=1, recompute="full")
    yield case("bf16 hsdp tp", dp_replicate=2, dp_shard=2, tp=2, precision="bf16", micro_batch=1)
    yield case("fp32 ddp reduce bf16", dp_replicate=2, reduce_dtype="bf16")


def _units() -> Iterator[tuple[str, Plan]]:
    """FSDP2 units, prefetching and shard dimensions; five layers leave a partial unit."""
    yield case("fsdp every_second_layer", dp_shard=2, recompute="every_second_layer", model="deep")
    yield case("fsdp units of 2", dp_shard=2, layers_per_unit=2, model="deep")
    yield case("fsdp units of 2 prefetch 2", dp_shard=2, layers_per_unit=2, prefetch_units=2, recompute="full", model="deep")
    yield case("fsdp prefetch 3", dp_shard=2, prefetch_units=3, model="deep", micro_batch=1)
    for model in ("tiny", "odd"):
        yield case(f"fsdp largest {model}", dp_shard=4, shard_placement="largest", model=model)
    yield case("hsdp largest", dp_replicate=2, dp_shard=2, shard_placement="largest", layers_per_unit=2)
    yield case("fsdp tp largest", dp_shard=2, tp=2, shard_placement="largest", sequence_parallel=True, loss_parallel=True)


def _pipelines() -> Iterator[tuple[str, Plan]]:
    """Five layers make uneven stages; a model with tied embeddings has its weight on the first and the last stage."""
    alone = {"pp": 2, "micro_batch": 2}
    for schedule in ("gpipe", "1f1b"):
        yield case(f"pp {schedule}", **alone, pp_schedule=schedule)
    for schedule in ("looped_bfs", "interleaved_1f1b", "interleaved_zero_bubble", "zbv_zero_bubble", "dual_pipe_v"):
        yield case(f"pp {schedule}", **alone, pp_schedule=schedule, pp_virtual_stages=2, model="deep")
        more = {"no_sync": True, "micro_batch": 1, "pp_virtual_stages": 2, "model": "deep"}
        keep = "zero" in schedule or "dual" in schedule
        yield case(f"pp fsdp {schedule}", pp=2, dp_shard=2, pp_schedule=schedule, **more, reshard_after_forward=not keep)
    yield case("pp tied", **alone, model="qwen")
    yield case("pp fsdp tied", pp=2, dp_shard=2, no_sync=True, micro_batch=1, model="qwen")
    yield case("pp tied v", **alone, model="qwen deep", pp_schedule="zbv_zero_bubble", pp_virtual_stages=2)
    yield case("pp 4", pp=4, micro_batch=1, model="deep")
    yield case("pp recompute", pp=2, micro_batch=2, recompute="full", model="deep")
    yield case("pp replicas", pp=2, dp_replicate=2, micro_batch=1, no_sync=True, model="deep")
    name, even = case("pp uneven", **alone, model="deep")
    yield name, replace(even, estimate=replace(even.estimate, pipeline_layers=(4, 1))).identified()
    both = {"sequence_parallel": True, "loss_parallel": True}
    yield case("pp tp", pp=2, tp=2, micro_batch=2, **both)
    yield case("pp tp plain", pp=2, tp=2, micro_batch=2)
    three = {"pp": 2, "dp_shard": 2, "tp": 2, "micro_batch": 1, "no_sync": True, "model": "deep"}
    yield case("pp fsdp tp", **three, **both)
    yield case("pp fsdp tp keep full", **three, **both, reshard_after_forward=False, recompute="full")
    yield case("pp fsdp tp interleaved", **three, **both, pp_schedule="interleaved_1f1b", pp_virtual_stages=2)
    half = {"pp_schedule": "zbv_zero_bubble", "pp_virtual_stages": 2, "reshard_after_forward": False}
    yield case("pp fsdp tp zero bubble", **three, **both, **half)
    yield case(
        "pp tp zero bubble", pp=2, tp=2, micro_batch=2, **both, model="deep", pp_schedule="zbv_zero_bubble", pp_virtual_stages=2
    )
    yield case("bf16 pp", **alone, precision="bf16")
    yield case("bf16 pp fsdp tp", **three, **both, precision="bf16")
    yield case("compile pp fsdp", pp=2, dp_shard=2, no_sync=True, micro_batch=1, compile=True, fullgraph=True)


def _compiled() -> Iterator[tuple[str, Plan]]:
    """torch stops recompiling a function after 8 variants: nine layers in one graph prove that one compilation serves all."""
    whole = {"compile": True, "fullgraph": True}
    yield case("compile ddp", dp_replicate=2, **whole, micro_batch=1)
    yield case("compile ddp selective", dp_replicate=2, **whole, recompute="selective")
    yield case("compile fsdp deepest", dp_shard=2, **whole, model="deepest", recompute="every_second_layer")
    yield case("compile fsdp full", dp_shard=2, **whole, recompute="full", micro_batch=1)
    yield case("compile fsdp selective units", dp_shard=2, **whole, recompute="selective", layers_per_unit=2)
    yield case("compile fsdp budget", dp_shard=2, **whole, recompute="budget", recompute_budget_percent=20)
    yield case("compile fsdp qwen graph breaks allowed", dp_shard=2, compile=True, model="qwen")
    yield case("compile tp", tp=2, **whole, recompute="selective")
    yield case("compile tp sequence", tp=2, **whole, sequence_parallel=True, loss_parallel=True)
    yield case("compile fsdp tp", dp_shard=2, tp=2, **whole, recompute="full", sequence_parallel=True, loss_parallel=True)
    yield case("compile fsdp tp qwen", dp_shard=2, tp=2, **whole, model="qwen", sequence_parallel=True, precision="bf16")
    yield case("compile bf16 fsdp", dp_shard=2, **whole, precision="bf16")
    yield case("compile bf16 ddp", dp_replicate=2, **whole, precision="bf16")


def references() -> Iterator[tuple[str, Plan]]:
    """The same training in one process, in fp32, with the whole batch as one micro-batch."""
    for model in MODELS:
        for optimizer in ("adamw",) if model in cases_models.MODELS else ("adamw", "sgd"):
            yield case(f"reference {model} {optimizer}", model=model, optimizer=optimizer, micro_batch=8)
