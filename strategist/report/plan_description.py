"""A plan in words: one line per part, with everything that differs from its default."""

from collections.abc import Iterator

from strategist.contract.knobs import Candidate, Knobs, KnobValue, show_value
from strategist.contract.layout import Layout
from strategist.contract.loss import chunk_tokens
from strategist.contract.options import OPTION_NAMES
from strategist.contract.plan import Plan
from strategist.contract.settings import SETTING_NAMES, value_of
from strategist.contract.workload import Workload
from strategist.report.setting_text import AXIS_WORDS

CONVERGENCE_NOTE = "(the trained model may differ)"

_DEFAULT = Candidate(layout=Layout(), knobs=Knobs())
_RECOMPUTE = {
    "none": "none: every activation is kept",
    "selective": "selective: outputs of {saved} are kept, the rest is computed again",
    "every_second_layer": "every_second_layer: of every second layer only the input is kept, the other layers keep everything",
    "budget": "budget: the compiler saves {percent}% of the activations that it would save, and recomputes the rest",
    "full": "full: only the input of each layer is kept",
}
_OFFLOAD = {
    "none": "",
    "optimizer": "optimizer states live in host memory and are updated there",
    "all": "parameters, gradients and optimizer states live in host memory",
    "streamed": "host memory holds all states; whole stages are streamed to the devices, each used for many micro-batches",
}
_ACTIVATION_OFFLOAD = "what layers save for the backward pass waits in host memory, and comes back one layer ahead of its turn"
_OPTIMIZERS = {
    "adamw": "AdamW with fp32 states",
    "adamw_bf16": f"AdamW with bf16 states {CONVERGENCE_NOTE}",
    "adamw8bit": f"AdamW with 8-bit states {CONVERGENCE_NOTE}",
    "muon": "Muon for the matrices of layers, AdamW for the rest",
    "sgd": "SGD without momentum",
}
_HOOKS = {"fp16": "cast to fp16", "bf16": "cast to bf16", "powersgd": "to a low rank (PowerSGD)"}
_SCALES = {"tensorwise": "a scale per tensor", "rowwise": "a scale per row"}

_CAN_BE_OFF = ("FSDP2", "PP", "TP", "CP", "compile", "offload")
"""Parts that are listed as off if absent."""

OPTION_WORDS: dict[str, tuple[str, dict[KnobValue, str] | str]] = {
    "bucket_cap_mb": ("DDP", "buckets of {} MiB"),
    "gradient_as_bucket_view": ("DDP", {True: "gradients are views into the buckets"}),
    "static_graph": ("DDP", {True: "the graph of the first step is taken for all steps (static_graph)"}),
    "find_unused_parameters": ("DDP", {True: "each step looks for parameters without a gradient"}),
    "reshard_root": ("FSDP2", {True: "the root's are freed after forward too"}),
    "shard_placement": ("FSDP2", {"largest": "cut in the largest dimension that divides evenly"}),
    "layers_per_unit": ("FSDP2", "{} layers gathered together"),
    "prefetch_units": ("FSDP2", "{} units gathered ahead"),
    "pin_memory": ("offload", {False: "in pageable memory"}),
    "async_tp": ("TP", {True: "collectives overlap with matmuls (async TP)"}),
    "cp_attention": ("CP", {"flex": "attention by FlexAttention"}),
    "cp_rotate": ("CP", {"alltoall": "keys and values travel by all-to-all"}),
    "cp_load_balance": ("CP", {"per_document": "work shared out document by document", "none": "work is not balanced"}),
    "cp_restore_buffers": ("CP", {False: "buffers are not made whole after the step"}),
    "grouped_gemm": ("EP", {True: "all experts of a rank in one matmul"}),
    "token_alignment": ("EP", "an expert's tokens padded to multiples of {}"),
    "expert_balance": ("EP", {"bias": f"kept busy by a bias on the router's scores {CONVERGENCE_NOTE}"}),
    "pp_split": ("PP", {"weighted": "embedding and head count as layers where stages are cut"}),
    "fullgraph": ("compile", {True: "as one graph"}),
    "optimizer_kernel": ("optimizer", {"fused": "fused update", "for_loop": "updated one parameter after the other"}),
    "checkpoint": ("job", {"async": "checkpoints written from a copy", "async_pinned": "checkpoints written from a pinned copy"}),
    "checkpoint_interval": ("job", "a checkpoint every {} steps"),
    "nccl_algorithm": ("job", {"ring": "NCCL reduces in rings", "tree": "NCCL reduces in trees"}),
    "nccl_p2p": ("job", {"off": "NCCL copies nothing directly between devices"}),
    "nccl_nvls": ("job", {"off": "NCCL does not reduce in the switches"}),
    "nccl_socket_threads": ("job", "{} threads for each of NCCL's sockets"),
    "cuda_connections": ("job", "hardware queues a device: {}"),
    "expandable_segments": ("job", {True: "expandable segments"}),
    "rendezvous": ("job", {"c10d": "c10d rendezvous"}),
    "max_restarts": ("job", "restarts: {} at most"),
}
"""Line of each option, and the text for values that differ from the default."""


def described_parts(plan: Plan) -> Iterator[tuple[str, str]]:
    """Every part of a plan with its description; then what is off, and what does not apply."""
    changed = [name for name in SETTING_NAMES if value_of(plan.candidate, name) != value_of(_DEFAULT, name)]
    effective = [name for name in changed if plan.matters(name)]
    off = []
    for name, text in _lines(plan):
        options = (_option(plan, option) for option in effective if option in OPTION_NAMES and OPTION_WORDS[option][0] == name)
        if words := "; ".join(filter(None, (text, *options))):
            yield name, words
        elif name in _CAN_BE_OFF:
            off.append(name)
    if off:
        yield "off", ", ".join(off)
    if ineffective := [f"{name} {show_value(value_of(plan.candidate, name))}" for name in changed if name not in effective]:
        yield "no effect", f"{', '.join(ineffective)}: nothing here to act on"


def _lines(plan: Plan) -> Iterator[tuple[str, str]]:
    """All lines in order, without options; empty where there is nothing to say."""
    layout, knobs, workload = plan.candidate.layout, plan.candidate.knobs, plan.workload
    yield "mesh", _mesh(layout)
    yield "FSDP2", _fsdp(layout, knobs)
    yield "DDP", _replicas(plan)
    yield "PP", _pipeline(layout, knobs)
    yield "TP", _tensor(layout, knobs)
    yield "CP", f"each sequence over {layout.cp} ranks" if layout.cp > 1 else ""
    if plan.model.moe is not None:
        yield (
            "EP",
            _experts(layout, plan.model.moe.experts) + ("; exchanges beside another micro-batch" if knobs.ep_overlap else ""),
        )
    yield "loss", f"head and loss over chunks of {chunk_tokens(plan.model.hidden_size):,} tokens" if knobs.chunked_loss else ""
    yield "recompute", _recompute(knobs)
    yield "precision", _precision(workload, knobs)
    yield "compile", "each layer" if knobs.compile else ""
    yield "offload", "; ".join(filter(None, (_OFFLOAD[knobs.offload], _ACTIVATION_OFFLOAD if knobs.activation_offload else "")))
    async_note = f"; updated by the hosts during the next step, which computes with parameters one step old {CONVERGENCE_NOTE}"
    in_backward_note = f"; each parameter updated as soon as its gradient is there, no norm clipped {CONVERGENCE_NOTE}"
    yield (
        "optimizer",
        _OPTIMIZERS[workload.optimizer]
        + (in_backward_note if knobs.optimizer_in_backward else async_note if knobs.async_optimizer_step else ""),
    )
    if workload.train != "full":
        yield "training", f"{workload.train} adapters of rank {workload.lora_rank}; the model itself stays as it is"
    yield "batch", _batch(plan)
    yield "job", ""


def _recompute(knobs: Knobs) -> str:
    *others, last = knobs.saved_operations.replace("_", " ").split("+")
    saved = f"{', '.join(others)} and {last}" if others else last
    return _RECOMPUTE[knobs.recompute].format(percent=knobs.recompute_budget_percent, saved=saved)


def _option(plan: Plan, name: str) -> str:
    words, value = OPTION_WORDS[name][1], value_of(plan.candidate, name)
    return words.format(value) if isinstance(words, str) else words[value]


def _mesh(layout: Layout) -> str:
    axes = [f"{axis} {size} ({AXIS_WORDS[axis]})" for axis, size in layout.mesh.items()]
    if not axes:
        return "1 device"
    order = "; the last axis lies closest together" if len(axes) > 1 else ""
    return " x ".join(axes) + f" = {layout.world_size} devices" + order


def _fsdp(layout: Layout, knobs: Knobs) -> str:
    replicated_pipeline = layout.pp > 1 and layout.dp_replicate > 1  # the pipeline tells FSDP2 which micro-batch is the last
    if layout.fsdp_ranks == 1 and layout.tp == 1 and knobs.offload != "all" and not replicated_pipeline:
        return ""
    if layout.fsdp_ranks == 1:
        copy_words = " and copies them from host memory" if knobs.offload == "all" else ""
        replicas = f", {layout.dp_replicate} replicas" if layout.dp_replicate > 1 else ""
        return f"parameters in one shard{replicas}: it casts them{copy_words}, and gathers nothing"
    resharding = {
        True: "freed after forward and gathered again for backward (reshard_after_forward=True)",
        False: "kept from forward to backward (reshard_after_forward=False)",
        "subgroup": f"kept in groups of {knobs.reshard_group_size} from forward to backward"
        f" (reshard_after_forward={knobs.reshard_group_size})",
    }[knobs.reshard_after_forward]
    replicated = f", {layout.dp_replicate} replicas (HSDP)" if layout.dp_replicate > 1 else ""
    return f"parameters in {layout.fsdp_ranks} shards{replicated}, {resharding}"


def _replicas(plan: Plan) -> str:
    layout, knobs = plan.candidate.layout, plan.candidate.knobs
    plain_replicas = layout.dp_replicate > 1 and not _fsdp(layout, knobs)
    has_hook = knobs.comm_hook != "none" and plan.matters("comm_hook")
    hook = f"gradients {_HOOKS[knobs.comm_hook]} for the all-reduce {CONVERGENCE_NOTE}" if has_hook else ""
    return "; ".join(filter(None, (f"{layout.dp_replicate} replicas" if plain_replicas else "", hook)))


def _pipeline(layout: Layout, knobs: Knobs) -> str:
    if layout.pp == 1:
        return ""
    if knobs.offload == "streamed":
        return f"embedding, layers and head round-robin over {layout.pp} ranks"
    stages = f", {knobs.pp_virtual_stages} stages a rank" if knobs.pp_virtual_stages > 1 else ""
    return f"{layout.pp} ranks in a row, schedule {knobs.pp_schedule}{stages}"


def _tensor(layout: Layout, knobs: Knobs) -> str:
    if layout.tp == 1:
        return ""
    extras = [name for name, is_on in (("sequence", knobs.sequence_parallel), ("loss", knobs.loss_parallel)) if is_on]
    return f"each matmul over {layout.tp} ranks" + (f", with {' and '.join(extras)} parallelism" if extras else "")


def _experts(layout: Layout, experts: int) -> str:
    split = f", each split over {layout.etp}" if layout.etp > 1 else ""
    if layout.ep == 1:
        return f"off; every rank works on all {experts} experts{split}"
    return f"{experts} experts over {layout.ep} ranks{split}"


def _precision(workload: Workload, knobs: Knobs) -> str:
    if workload.precision == "fp32":
        matmuls = "fp32 throughout"
    else:
        stored = "fp32 parameters and optimizer" if workload.train == "full" else "adapters in fp32"
        matmuls = f"matmuls in {workload.precision}, {stored}"
    if knobs.float8 != "none":
        gathered = ", shards gathered in float8" if knobs.float8_all_gather else ""
        matmuls += f"; linears in float8 with {_SCALES[knobs.float8]}{gathered} {CONVERGENCE_NOTE}"
    differs = f" {CONVERGENCE_NOTE}" if knobs.reduce_dtype != "fp32" else ""
    return f"{matmuls}; gradients reduced in {knobs.reduce_dtype}{differs}"


def _batch(plan: Plan) -> str:
    ranks, knobs = plan.candidate.layout.data_ranks, plan.candidate.knobs
    ranks_text = f" x {ranks} data ranks" if ranks > 1 else ""
    step = f"{plan.workload.global_batch} sequences of {plan.workload.seq_len:,} tokens"
    reduction = "; gradients reduced once a step" if knobs.no_sync and plan.matters("no_sync") else ""
    return f"micro-batch {knobs.micro_batch} x accumulation {plan.accumulation}{ranks_text} = {step}{reduction}"
