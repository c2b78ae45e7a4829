"""Settings and figures in plain words; text only."""

from collections.abc import Iterator

from strategist.contract.knobs import Candidate, Knobs
from strategist.contract.layout import Layout
from strategist.contract.plan import Plan, Reason
from strategist.contract.workload import Workload
from strategist.units import GIB

AXIS_WORDS = {
    "pp": "pipeline stages",
    "dp_replicate": "replicas",
    "dp_shard": "FSDP2 shards",
    "cp": "pieces of each sequence",
    "tp": "pieces of each matmul",
}
"""What the degree of an axis counts."""

_RECOMPUTE = {
    "none": "none: every activation is kept",
    "selective": "selective: outputs of matmul and attention are kept, the rest is computed again",
    "full": "full: only the input of each layer is kept",
}
_OFFLOAD = {
    "none": "none",
    "optimizer": "optimizer states live in host memory and are updated there",
    "all": "parameters, gradients and optimizer states live in host memory",
    "streamed": "host memory holds all states; whole stages are streamed to the devices, each used for many micro-batches",
}
_OPTIMIZERS = {
    "adamw": "AdamW with fp32 states",
    "adamw8bit": "AdamW with 8-bit states (the trained model may differ)",
    "sgd": "SGD without momentum",
}


def gib(size: float) -> str:
    """Bytes as GiB with one decimal; small sizes keep two digits."""
    return f"{size / GIB:,.1f}" if abs(size) >= 0.1 * GIB or size == 0 else f"{size / GIB:.2g}"


def percent(share: float) -> str:
    """A share with one decimal below 10 %."""
    return f"{share:.1%}" if abs(share) < 0.0995 else f"{share:.0%}"


def tokens(per_second: float) -> str:
    """Tokens a second, whole from 10 on."""
    return f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.2g}"


def said(reason: Reason) -> str:
    """What a policy says of a plan, by its id and effect."""
    return f"{reason.policy} ({reason.effect}): {reason.text}"


def layout_words(layout: Layout) -> str:
    """The mesh in short: ``dp_shard 8`` or ``pp 2, tp 4, ep 8``; ``1 device`` where there is none."""
    degrees = dict(layout.mesh)
    degrees |= {name: getattr(layout, name) for name in ("ep", "etp") if getattr(layout, name) > 1}
    return ", ".join(f"{name} {size}" for name, size in degrees.items()) or "1 device"


def candidate_words(candidate: Candidate) -> str:
    """The mesh in short, with the settings in which candidates of one mesh differ: schedule, resharding, late reduction."""
    layout, knobs = candidate.layout, candidate.knobs
    parts = [layout_words(layout)]
    if layout.pp > 1:
        parts.append(knobs.pp_schedule + (f" x{knobs.pp_virtual_stages}" if knobs.pp_virtual_stages > 1 else ""))
    if layout.fsdp_ranks > 1 and knobs.reshard_after_forward is not True:
        kept = "parameters kept" if knobs.reshard_after_forward is False else f"kept in groups of {knobs.reshard_group_size}"
        parts.append(kept)
    if layout.pp == 1 and knobs.postpone_gradient_sync:
        parts.append("reduced once a step")
    return ", ".join(parts)


def batch_words(candidate: Candidate, workload: Workload) -> str:
    """Micro-batch x accumulation."""
    return f"{candidate.knobs.micro_batch}x{candidate.accumulation(workload)}"


def change_words(plan: Plan) -> str:
    """One line for a plan: its mesh, and whatever is not plain."""
    knobs = plan.candidate.knobs
    parts = [candidate_words(plan.candidate), f"micro-batch {batch_words(plan.candidate, plan.workload)}"]
    parts += [f"recompute {knobs.recompute}"] if knobs.recompute != "none" else []
    parts += [f"offload {knobs.offload}"] if knobs.offload != "none" else []
    return ", ".join(parts)


def spelled_out(plan: Plan) -> Iterator[tuple[str, str]]:
    """Every setting of a plan: what it is about, and in words what it does."""
    layout, knobs, workload = plan.candidate.layout, plan.candidate.knobs, plan.workload
    yield "mesh", _mesh(layout)
    yield "FSDP2", _fsdp(layout, knobs)
    yield "PP", _pipeline(layout, knobs)
    yield "TP", _tensor(layout, knobs)
    yield "CP", f"each sequence over {layout.cp} ranks" if layout.cp > 1 else "off"
    if plan.model.moe is not None:
        yield "EP", _experts(layout, plan.model.moe.experts)
    yield "recompute", _RECOMPUTE[knobs.recompute]
    yield "precision", _precision(workload, knobs)
    yield "offload", _OFFLOAD[knobs.offload]
    yield "optimizer", _OPTIMIZERS[workload.optimizer]
    if workload.train != "full":
        yield "training", f"{workload.train} adapters of rank {workload.lora_rank}; the model itself stays as it is"
    yield "batch", _batch(plan)


def _mesh(layout: Layout) -> str:
    axes = [f"{axis} {size} ({AXIS_WORDS[axis]})" for axis, size in layout.mesh.items()]
    if not axes:
        return "1 device"
    order = "; the last axis lies closest together" if len(axes) > 1 else ""
    return " x ".join(axes) + f" = {layout.world_size} devices" + order


def _fsdp(layout: Layout, knobs: Knobs) -> str:
    if layout.fsdp_ranks == 1 and layout.tp == 1 and knobs.offload != "all":
        return f"off; DDP over {layout.dp_replicate} replicas" if layout.dp_replicate > 1 else "off"
    if layout.fsdp_ranks == 1:
        copies = " and copies them from host memory" if knobs.offload == "all" else ""
        return f"parameters in one shard, {layout.dp_replicate} replicas: it casts them{copies}, and gathers nothing"
    kept = {
        True: "freed after forward and gathered again for backward (reshard_after_forward=True)",
        False: "kept from forward to backward (reshard_after_forward=False)",
        "subgroup": f"kept in groups of {knobs.reshard_group_size} from forward to backward"
        f" (reshard_after_forward={knobs.reshard_group_size})",
    }[knobs.reshard_after_forward]
    replicated = f", {layout.dp_replicate} replicas (HSDP)" if layout.dp_replicate > 1 else ""
    late = "; gradients reduced once a step" if knobs.postpone_gradient_sync else ""
    return f"parameters in {layout.fsdp_ranks} shards{replicated}, {kept}{late}"


def _pipeline(layout: Layout, knobs: Knobs) -> str:
    if layout.pp == 1:
        return "off"
    stages = f", {knobs.pp_virtual_stages} stages a rank" if knobs.pp_virtual_stages > 1 else ""
    return f"{layout.pp} ranks in a row, schedule {knobs.pp_schedule}{stages}"


def _tensor(layout: Layout, knobs: Knobs) -> str:
    if layout.tp == 1:
        return "off"
    extras = [name for name, on in (("sequence", knobs.sequence_parallel), ("loss", knobs.loss_parallel)) if on]
    return f"each matmul over {layout.tp} ranks" + (f", with {' and '.join(extras)} parallelism" if extras else "")


def _experts(layout: Layout, experts: int) -> str:
    if layout.ep == 1:
        return f"off; every rank works on all {experts} experts"
    split = f", each split over {layout.etp}" if layout.etp > 1 else ""
    return f"{experts} experts over {layout.ep} ranks{split}"


def _precision(workload: Workload, knobs: Knobs) -> str:
    if workload.precision == "fp32":
        return f"fp32 throughout; gradients reduced in {knobs.reduce_dtype}"
    held = "fp32 parameters and optimizer" if workload.train == "full" else "adapters in fp32"
    differs = " (the trained model may differ)" if knobs.reduce_dtype != "fp32" else ""
    return f"matmuls in {workload.precision}, {held}; gradients reduced in {knobs.reduce_dtype}{differs}"


def _batch(plan: Plan) -> str:
    ranks, knobs = plan.candidate.layout.data_ranks, plan.candidate.knobs
    over = f" x {ranks} data ranks" if ranks > 1 else ""
    batch, length = plan.workload.global_batch, plan.workload.seq_len
    return f"micro-batch {knobs.micro_batch} x accumulation {plan.accumulation}{over} = {batch} sequences of {length:,} tokens"
