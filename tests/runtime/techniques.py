"""Techniques and the tests and measurements of each, for a page of the reference.

Each technique is defined once, as a predicate of a plan; counts are those of the parity cases and of our own measurements.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import combinations
from typing import TypeVar

from strategist.contract import codec
from strategist.contract.measurement import Measurement, Outcome
from strategist.contract.options import Options
from strategist.contract.plan import Plan
from strategist.contract.sac_policy import SAVED_OPERATIONS
from strategist.contract.settings import SETTING_NAMES, value_of
from strategist.paths import data_dir

from .cases import cases
from .rounding import TOLERANCES, rounding

Predicate = Callable[[Plan], bool]
Part = TypeVar("Part")


def setting(name: str, *values: object) -> Predicate:
    """The setting has an effect and one of the values, or a value other than torch's default."""

    def found(plan: Plan) -> bool:
        value = value_of(plan.candidate, name)
        return plan.matters(name) and (value in values if values else value != getattr(Options, name, None))

    assert name in SETTING_NAMES, name
    return found


def several(name: str) -> Predicate:
    return lambda plan: getattr(plan.candidate.layout, name) > 1


def trained(name: str, *values: str) -> Predicate:
    return lambda plan: getattr(plan.workload, name) in values


def both(*each: Predicate) -> Predicate:
    return lambda plan: all(one(plan) for one in each)


def replicas(plan: Plan) -> bool:
    layout = plan.candidate.layout
    return layout.dp_replicate > 1 and layout.model_shards == 1


def not_streamed(plan: Plan) -> bool:
    """Stages stay on their ranks."""
    return plan.candidate.knobs.offload != "streamed"


def accumulates(plan: Plan) -> bool:
    return plan.accumulation > 1


SCHEDULES = ("gpipe", "1f1b", "looped_bfs", "interleaved_1f1b", "interleaved_zero_bubble", "zbv_zero_bubble", "dual_pipe_v")
PP, CP, TP, SHARDS, EP = (several(axis) for axis in ("pp", "cp", "tp", "dp_shard", "ep"))

TECHNIQUES: dict[str, dict[str, Predicate]] = {
    "Data parallel": {
        "DDP": replicas,
        "DDP, compressed reductions": setting("comm_hook", "fp16", "bf16", "powersgd"),
        "FSDP2": SHARDS,
        "FSDP2, parameters kept gathered": both(SHARDS, setting("reshard_after_forward", False)),
        "FSDP2, resharded to a subgroup": setting("reshard_after_forward", "subgroup"),
        "FSDP2, shards of the largest dimension": setting("shard_placement", "largest"),
        "FSDP2, several layers a unit": setting("layers_per_unit"),
        "FSDP2, explicit prefetch": setting("prefetch_units"),
        "HSDP": both(several("dp_replicate"), SHARDS),
        "accumulation": accumulates,
        "accumulation, no_sync": both(accumulates, setting("no_sync", True)),
    },
    "Model parallel": {
        "tensor parallelism": TP,
        "sequence parallelism": setting("sequence_parallel", True),
        "loss parallelism": setting("loss_parallel", True),
        "loss, in chunks": setting("chunked_loss", True),
        **{f"pipeline, {schedule}": both(not_streamed, setting("pp_schedule", schedule)) for schedule in SCHEDULES},
        "pipeline, uneven stages": lambda plan: bool(plan.estimate.pipeline_layers),
        "context parallelism, ring": both(CP, setting("cp_attention", "sdpa")),
        "context parallelism, gathered": both(CP, setting("cp_attention", "flex")),
        "expert parallelism": EP,
        "experts split by tensor parallelism": several("etp"),
        "grouped GEMM": setting("grouped_gemm", True),
    },
    "Mixtures": {
        "FSDP2 x TP": both(SHARDS, TP),
        "HSDP x TP": both(several("dp_replicate"), SHARDS, TP),
        "PP x FSDP2": both(PP, SHARDS),
        "PP x FSDP2 x TP": both(PP, SHARDS, TP),
        "CP x FSDP2": both(CP, SHARDS),
        "CP x TP": both(CP, TP),
        "PP x CP": both(PP, CP),
        "EP x FSDP2": both(EP, SHARDS),
        "EP x TP": both(EP, TP),
        "EP x PP": both(EP, PP),
        "EP x TP x PP": both(EP, TP, PP),
    },
    "Memory": {
        **{f"recompute, {kind}": setting("recompute", kind) for kind in ("full", "every_second_layer", "selective", "budget")},
        "recompute, other operations saved": lambda plan: plan.candidate.knobs.saved_operations != SAVED_OPERATIONS[0],
        "offload, all state (FSDP2)": setting("offload", "all"),
        "offload, optimizer": setting("offload", "optimizer"),
        "offload, streamed stages": setting("offload", "streamed"),
        "offload, activations": setting("activation_offload", True),
    },
    "Arithmetic and optimizers": {
        **{precision: trained("precision", precision) for precision in ("fp32", "bf16", "fp16", "bf16-true")},
        "float8, tensorwise": setting("float8", "tensorwise"),
        "float8, rowwise": setting("float8", "rowwise"),
        "compiled layers": setting("compile", True),
        **{name: trained("optimizer", name) for name in ("adamw", "adamw_bf16", "adamw8bit", "muon", "sgd")},
        "update in the backward pass": setting("optimizer_in_backward", True),
        "update in the backward pass, by the host": both(
            setting("optimizer_in_backward", True), lambda plan: plan.candidate.knobs.offload != "none"
        ),
    },
    "Models": {
        "dense": lambda plan: plan.model.moe is None,
        "mixture of experts": lambda plan: plan.model.moe is not None,
        "latent attention (MLA)": lambda plan: plan.model.mla is not None,
        "LoRA": trained("train", "lora"),
        "QLoRA": trained("train", "qlora"),
    },
}


TESTED_ELSEWHERE = {"adamw8bit"}
"""Each rank quantizes blocks of its own shard, so layouts differ; tested in test_optimizer.py."""

MOST_RANKS = 4
"""The most ranks of a case of the full run alone."""


def in_every_run() -> list[str]:
    """Names of a few cheap parity cases that cover each technique and each combination; ``make test`` trains these."""
    covers = {name: techniques_of(plan) for name, plan in parity_cases().items()}
    return cheapest_cover(covers, set().union(*covers.values()))


def in_full_run() -> list[str]:
    """Names of the cases that ``make test-all`` trains. With those of every run they have all pairs of techniques and all values of
    settings that cases on at most four ranks have.
    """
    covers = {name: pairs_and_values(plan) for name, plan in parity_cases().items()}
    others = {name: found for name, found in covers.items() if parity_cases()[name].candidate.layout.world_size <= MOST_RANKS}
    return cheapest_cover(others, set().union(*others.values()).difference(*(covers[name] for name in in_every_run())))


@cache
def parity_cases() -> dict[str, Plan]:
    """The parallel plans that are compared with one process."""
    return {name: plan for name, plan in cases() if not name.startswith("reference")}


def techniques_of(plan: Plan) -> set[str]:
    """The techniques of ``TECHNIQUES`` that a parity case tests."""
    each = (item for group in TECHNIQUES.values() for item in group.items())
    return {name for name, used in each if name not in TESTED_ELSEWHERE and used(plan)}


def pairs_and_values(plan: Plan) -> set[tuple[str, str]]:
    """Pairs of techniques, and values of settings, of the workload and of the model."""
    values = {name: value_of(plan.candidate, name) for name in SETTING_NAMES if plan.matters(name)}
    values |= {**vars(plan.workload), "model": plan.model.name}
    return {*combinations(sorted(techniques_of(plan)), 2), *((name, str(value)) for name, value in values.items())}


def cheapest_cover(covers: Mapping[str, set[Part]], wanted: set[Part]) -> list[str]:
    """Names of cheap cases that together have all ``wanted``."""
    plans = parity_cases()
    chosen, missing = list[str](), set(wanted)
    while missing:
        chosen.append(max(covers, key=lambda name: len(covers[name] & missing) / cost(plans[name])))
        missing -= covers[chosen[-1]]
    for name in sorted(chosen, key=lambda name: cost(plans[name]), reverse=True):
        others = [other for other in chosen if other != name]
        alone = (covers[name] & wanted).difference(*(covers[other] for other in others))
        if not alone:
            chosen = others
        elif plans[name].candidate.layout.world_size > 2:  # what it alone covers may need fewer ranks
            able = [other for other in covers if covers[other] >= alone]
            chosen = [*others, min(able, key=lambda other: (cost(plans[other]), other != name))]
    return chosen


def cost(plan: Plan) -> float:
    """Rough processor time of a parity case, in ranks: ranks share few cores, and DTensor and the compiler are slow."""
    layout, knobs = plan.candidate.layout, plan.candidate.knobs
    return layout.world_size**1.5 * (2 if layout.tp > 1 else 1) * (3 if knobs.compile else 1)


def pages() -> dict[str, str]:
    """The page, in Markdown."""
    plans, measured = list(parity_cases().values()), list(measurements())
    lines = [*_head(len(plans)), *(line for group in TECHNIQUES for line in _table(group, plans, measured))]
    return {"techniques.md": "\n".join(lines) + "\n"}


def _head(count: int) -> Iterator[str]:
    yield "# Techniques: tested and measured"
    yield ""
    yield f"From the {count} parity cases of `tests/runtime` and from `profiles/measurements/*.jsonl`."
    yield ""
    yield "**gloo**: cases on real processes whose losses, gradient norms and gradients equal those of one process; relative"
    yield "tolerance of the loss, then of gradients: " + "; ".join(
        f"{kind} {loss:g}, {gradient:g}" for kind, (loss, gradient) in TOLERANCES.items()
    )
    yield "(exact is fp32; a case has the tolerance of its least precise part). **measured**: our own recorded trials, on gloo and"
    yield "NCCL. On gloo a measured comm ratio tests the code and does not predict that of GPUs: a reduce-scatter is an"
    yield "all-reduce there, and FSDP2 hardly overlaps."


def _table(group: str, plans: list[Plan], measured: list[Plan]) -> Iterator[str]:
    yield ""
    yield f"## {group}"
    yield ""
    yield "| technique | gloo | exact | measured, gloo | measured, NCCL |"
    yield "|---|---:|---:|---:|---:|"
    for name, used in TECHNIQUES[group].items():
        tested = [plan for plan in plans if used(plan)]
        exact = sum(rounding(plan) == "exact" for plan in tested)
        there = [sum(used(plan) and plan.cluster.device.kind == kind for plan in measured) for kind in ("cpu", "cuda")]
        yield f"| {name} | {len(tested) or '-'} | {exact or '-'} | {there[0] or '-'} | {there[1] or '-'} |"


def measurements() -> Iterator[Plan]:
    """The plans with a successful measurement."""
    for file in sorted((data_dir("profiles") / "measurements").glob("*.jsonl")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines()):
            record, place = json.loads(line), f"{file.name} line {number + 1}"
            if codec.decode(Measurement, record["measurement"], place).outcome is Outcome.OK:
                yield codec.decode(Plan, record["plan"], place)
