"""Vocabulary of the cards: type, unit, phase and meaning of every name, in one table."""

from collections.abc import Iterable, Mapping
from typing import Any

from strategist.contract.cluster import FABRICS
from strategist.contract.knobs import KnobValue, show_value
from strategist.contract.model import ROUTER_SCORES
from strategist.contract.outcome import EVIDENCE_OUTCOMES
from strategist.contract.settings import SETTING_CHOICES, SETTING_NAMES, full_name, least
from strategist.contract.workload import OPTIMIZERS, PRECISIONS, TRAIN_MODES
from strategist.errors import did_you_mean
from strategist.frozen import frozen
from strategist.units import show_bytes, show_count, show_seconds

INT, FLOAT, BOOL, CATEGORY = "int", "float", "bool", "category"
REQUEST, CANDIDATE, ESTIMATE, OBSERVED = "request", "candidate", "estimate", "observed"

Dimension = tuple[int, int, int]
"""Powers of (bytes, seconds, FLOPs)."""

UNITS: dict[str, Dimension] = {
    "none": (0, 0, 0),
    "count": (0, 0, 0),
    "ratio": (0, 0, 0),
    "bytes": (1, 0, 0),
    "seconds": (0, 1, 0),
    "bytes/s": (1, -1, 0),
    "flop/s": (0, -1, 1),
    "tokens/s": (0, -1, 0),
}
"""Units of the vocabulary; counts and ratios carry no dimension."""


@frozen
class Name:
    """One entry. ``phase``: from when its value is known. ``choices``: allowed values of a category."""

    name: str
    kind: str
    unit: str
    phase: str
    doc: str
    choices: tuple[KnobValue, ...] = ()

    @property
    def low(self) -> int | None:
        """Smallest possible value; None where there is no lower limit."""
        if self.kind == INT and self.phase == CANDIDATE:
            return least(self.name.partition(".")[2])
        return 0 if self.kind in (INT, FLOAT) else None

    @property
    def high(self) -> int | None:
        """Largest possible value; None where there is no upper limit.

        MFU can exceed 1, because it also counts the half of attention that causal kernels skip.
        """
        return 1 if self.unit == "ratio" and not self.name.endswith(".mfu") else None


# One name per line: name | kind | unit | meaning.
_TABLE: dict[str, str] = {
    CANDIDATE: """
layout.pp             | int | count | Pipeline-parallel degree.
layout.dp_replicate   | int | count | Degree of replicated data parallelism.
layout.dp_shard       | int | count | Degree of sharded data parallelism.
layout.cp             | int | count | Context-parallel degree.
layout.tp             | int | count | Tensor-parallel degree.
layout.ep             | int | count | Expert-parallel degree: ranks that share a layer's experts.
layout.etp            | int | count | Expert-tensor-parallel degree: ranks that split each expert.
layout.axis_order     | category | none | Axes of the mesh from the slowest links to the fastest.
layout.world_size     | int | count | All ranks.
layout.data_ranks     | int | count | Ranks that read different sequences: dp_replicate x dp_shard.
layout.fsdp_ranks     | int | count | Ranks that share one set of parameter shards: dp_shard x cp.
layout.model_shards   | int | count | Pieces in which the dense parameters lie: pp x fsdp_ranks x tp.
knobs.micro_batch        | int | count | Sequences per forward pass of one data rank.
knobs.recompute          | category | none | Activation checkpointing.
knobs.reshard_after_forward | category | none | Gathered parameters after forward: freed, kept, or kept in a subgroup.
knobs.reshard_group_size | int | count | Ranks of the subgroup that keeps a copy between forward and backward.
knobs.sequence_parallel  | bool | none | Activations between tensor-parallel regions are sharded along the sequence.
knobs.loss_parallel      | bool | none | Logits stay sharded over tp through the loss.
knobs.reduce_dtype       | category | none | Type in which gradients are reduced and accumulated.
knobs.no_sync | bool | none | Gradients are reduced after the last micro-batch only, and kept unsharded till then.
knobs.offload            | category | none | What lives in host memory.
knobs.pp_schedule        | category | none | Pipeline schedule.
knobs.pp_virtual_stages  | int | count | Stages that each pipeline rank holds.
knobs.saved_operations   | category | none | Operations whose outputs are kept when recompute is selective.
knobs.recompute_budget_percent | int | count | Share of its activations that the compiler may save when recompute is budget.
knobs.compile            | bool | none | Each layer is compiled.
knobs.float8             | category | none | Scales of linears that multiply in float8.
knobs.float8_all_gather  | bool | none | Shards are cast to float8 before they are gathered.
knobs.comm_hook          | category | none | How DDP compresses gradients for the all-reduce.
knobs.optimizer_in_backward | bool | none | Each parameter is updated as soon as its gradient is there.
knobs.async_optimizer_step | bool | none | The hosts update streamed stages beside the next step.
knobs.activation_offload | bool | none | What layers save for the backward pass waits in host memory.
knobs.chunked_loss | bool | none | Head and loss run over chunks of the tokens; logits of one chunk exist at a time.
knobs.ep_overlap | bool | none | Expert exchanges of a micro-batch overlap with the computation of another one.
knobs.accumulation       | int | count | Micro-batches of one step on one data rank.
options.bucket_cap_mb    | int | count | Size of DDP's gradient buckets in MiB.
options.gradient_as_bucket_view | bool | none | DDP's gradients are views into its buckets.
options.static_graph     | bool | none | DDP may take the graph of the first step for all steps.
options.find_unused_parameters | bool | none | DDP looks for parameters without a gradient in each step.
options.reshard_root     | bool | none | FSDP2 frees the root's parameters after forward.
options.shard_placement  | category | none | Dimension in which FSDP2 cuts a parameter.
options.layers_per_unit  | int | count | Layers that FSDP2 gathers together.
options.prefetch_units   | int | count | Units that FSDP2 gathers ahead.
options.pin_memory       | bool | none | Offloaded tensors lie in page-locked host memory.
options.async_tp         | bool | none | Matmuls and collectives of tensor parallelism overlap through symmetric memory.
options.cp_attention     | category | none | Attention kernel under context parallelism.
options.cp_rotate        | category | none | How keys and values travel between context-parallel ranks.
options.cp_load_balance  | category | none | How causal attention is shared out between context-parallel ranks.
options.cp_restore_buffers | bool | none | Buffers are made whole again after the step.
options.grouped_gemm     | bool | none | All experts of a rank multiply in one kernel.
options.token_alignment  | int | count | Tokens of an expert are padded to a multiple of this.
options.expert_balance   | category | none | What keeps experts equally busy.
options.pp_split         | category | none | What stages share out evenly: layers, or weight with embedding and head.
options.fullgraph        | bool | none | A compiled layer must be one graph.
options.optimizer_kernel | category | none | Implementation of the optimizer's update.
options.checkpoint       | category | none | How checkpoints are written.
options.checkpoint_interval | int | count | Steps between checkpoints.
options.nccl_algorithm   | category | none | Algorithm of NCCL's reductions.
options.nccl_p2p         | category | none | Whether NCCL copies directly between devices.
options.nccl_nvls        | category | none | Whether NCCL reduces inside the NVLink switches.
options.nccl_socket_threads | int | count | Threads that serve each socket of NCCL.
options.cuda_connections | int | count | Hardware queues of a device.
options.expandable_segments | bool | none | The allocator grows segments instead of adding some.
options.rendezvous       | category | none | How torchrun's nodes find each other.
options.max_restarts     | int | count | Times that torchrun starts the workers again.
""",
    REQUEST: """
model.layers            | int | count | Decoder layers.
model.hidden_size       | int | count | Width of the residual stream.
model.heads             | int | count | Attention heads.
model.kv_heads          | int | count | Key and value heads.
model.head_size         | int | count | Width of one head.
model.ffn_size          | int | count | Inner width of a dense feed-forward.
model.vocab_size        | int | count | Size of the vocabulary.
model.parameters        | int | count | All parameters.
model.active_parameters | int | count | Parameters that one token uses.
model.parameter_bytes   | int | bytes | All parameters in the type that matmuls compute in.
model.state_bytes       | int | bytes | Parameters, gradients and optimizer states of the whole model, as the workload keeps them.
model.experts           | int | count | Routed experts of a layer; 0 for dense models.
model.experts_per_token | int | count | Routed experts that a token visits; 0 for dense models.
model.expert_ffn_size   | int | count | Inner width of a routed expert; 0 for dense models.
model.checkpoint_bytes  | int | bytes | Parameters and optimizer states, as a checkpoint holds them.
model.layer_bytes       | int | bytes | Parameters of one average layer in the type that matmuls compute in.
model.is_moe            | bool | none | The model has routed experts.
model.tied_embeddings   | bool | none | The output projection is the token embedding.
model.attention_sinks   | bool | none | Each attention head has a learned sink in its softmax.
model.is_mla            | bool | none | Attention has latent keys and values.
model.attended_width    | int | count | Elements that one token's heads give to the output projection.
model.rotary_size       | int | count | Elements of a head that rotary positions turn; 0 where positions are learned.
model.learned_positions | int | count | Positions with an embedding of their own; 0 for rotary ones.
model.sliding_window    | int | count | Tokens that a token of a windowed layer attends to; 0 where no layer is windowed.
model.qkv_bias          | bool | none | Projections of queries, keys and values have a bias.
model.qk_norm           | bool | none | Queries and keys have norms.
model.rope_theta        | float | none | Base of the rotary frequencies.
model.norm_epsilon      | float | none | What norms add to the mean square.
model.shared_experts    | int | count | Experts that every token visits; 0 where there are none.
model.shared_expert_gate | bool | none | A gate weighs what the shared experts give to each token.
model.first_dense_layers | int | count | Layers without experts, of a model that has some; 0 for dense models.
model.router_score      | category | none | What the router makes of its scores.
workload.seq_len        | int | count | Tokens of a sequence.
workload.global_batch   | int | count | Sequences of a step over all ranks.
workload.precision      | category | none | Type that matmuls compute in.
workload.optimizer      | category | none | Optimizer.
workload.train          | category | none | What is trained.
workload.lora_rank      | int | count | Rank of the LoRA matrices.
workload.document_tokens | int | count | Mean length of the documents that a sequence holds; 0 where it is one.
workload.tokens_per_step | int | count | Tokens of a step over all ranks.
device.kind             | category | none | What a rank computes on.
device.memory_bytes     | int | bytes | Memory of a device, as its vendor states it.
device.usable_memory_bytes | int | bytes | Memory that a program can allocate on a device.
device.peak_flops       | float | flop/s | Peak of dense matmuls in the workload's precision.
device.bf16_flops       | float | flop/s | Peak of dense bf16 matmuls; 0 where the device has none.
device.float8_flops     | float | flop/s | Peak of dense float8 matmuls; 0 where the device has none.
device.memory_bytes_per_second | float | bytes/s | Bandwidth of the device's memory.
cluster.nodes           | int | count | Nodes.
cluster.gpus_per_node   | int | count | Devices of a node.
cluster.devices         | int | count | All devices.
cluster.intra_node_bytes_per_second | float | bytes/s | Bus bandwidth that a collective reaches inside a node.
cluster.inter_node_bytes_per_second | float | bytes/s | Bus bandwidth that a collective reaches between nodes.
cluster.intra_node_latency_seconds | float | seconds | Time of a hop inside a node, however small the message.
cluster.inter_node_latency_seconds | float | seconds | Time of a hop between nodes, however small the message.
cluster.intra_node_fabric | category | none | What links the devices of a node.
cluster.inter_node_fabric | category | none | What links nodes.
cluster.mean_seconds_between_failures | float | seconds | Expected time between failures of any node.
cluster.storage_bytes_per_second | float | bytes/s | What each node writes of a checkpoint, beside the others.
cluster.host_memory_bytes | int | bytes | Memory of a node's host; unknown where no file states it.
cluster.host_bytes_per_second | float | bytes/s | Device to host, per device, when all devices of a node copy at once.
""",
    ESTIMATE: """
estimate.step_seconds       | float | seconds | Predicted time of a step.
estimate.tokens_per_second  | float | tokens/s | Predicted throughput of all devices.
estimate.mfu                | float | ratio | Predicted share of the peak, model FLOPs only.
estimate.peak_memory_bytes  | float | bytes | Predicted peak of the fullest device.
estimate.reserved_memory_bytes | float | bytes | Predicted peak with the free blocks that the allocator caches beside it.
estimate.host_memory_bytes_per_node | float | bytes | Predicted host memory of a node.
estimate.comm_ratio         | float | ratio | Predicted share of the step in which a collective runs.
estimate.exposed_comm_ratio | float | ratio | Predicted share of the step in which only a collective runs.
estimate.bubble_ratio       | float | ratio | Predicted share of the step lost to the pipeline's bubble.
estimate.even_stages        | bool | none | Stages have equally many layers; the first ones one more where they don't go round.
""",
    OBSERVED: """
observed.step_seconds        | float | seconds | Measured median time of a step.
observed.step_seconds_spread | float | none | Measured spread of the step times over their median.
observed.tokens_per_second   | float | tokens/s | Measured throughput of all devices.
observed.mfu                 | float | ratio | Measured share of the peak, model FLOPs only.
observed.peak_memory_bytes   | float | bytes | Measured peak of the fullest device.
observed.comm_ratio          | float | ratio | Measured share of the step in which a collective ran.
observed.exposed_comm_ratio  | float | ratio | Measured share of the step in which only a collective ran.
observed.exposed_pp_comm_ratio | float | ratio | Measured share of the step in which only pp communicated, waits included.
observed.exposed_dp_replicate_comm_ratio | float | ratio | Measured share of the step in which only dp_replicate communicated.
observed.exposed_dp_shard_comm_ratio | float | ratio | Measured share of the step in which only dp_shard communicated.
observed.exposed_cp_comm_ratio | float | ratio | Measured share of the step in which only cp communicated.
observed.exposed_tp_comm_ratio | float | ratio | Measured share of the step in which only tp communicated.
observed.exposed_ep_comm_ratio | float | ratio | Measured share of the step in which only ep communicated.
observed.overlap_ratio       | float | ratio | Measured share of communication that something else hid: 1 - exposed / all.
observed.bubble_ratio        | float | ratio | Measured share of the step that a pipeline rank waited, transfers left out.
observed.rank_imbalance      | float | none | Measured computing time of a stage's slowest rank over its median rank, minus 1.
observed.stage_imbalance     | float | none | Measured computing time of the slowest stage over the median stage, minus 1.
observed.peak_memory_ratio   | float | none | Measured peak of the fullest device over what a program can allocate there.
observed.memory_imbalance    | float | none | Measured peak of the fullest device over the mean of all, minus 1.
observed.outcome             | category | none | How the trial ended; the figures of one that failed are unknown.
""",
}
_CHOICES: dict[str, tuple[KnobValue, ...]] = {
    **{full_name(name): choices for name, choices in SETTING_CHOICES.items()},
    "model.router_score": ROUTER_SCORES,
    "workload.precision": PRECISIONS,
    "workload.optimizer": OPTIMIZERS,
    "workload.train": TRAIN_MODES,
    "device.kind": ("cpu", "cuda"),
    "observed.outcome": tuple(outcome.value for outcome in EVIDENCE_OUTCOMES),
    "cluster.intra_node_fabric": FABRICS,
    "cluster.inter_node_fabric": FABRICS,
}


def _read_table() -> dict[str, Name]:
    names = {}
    for phase, lines in _TABLE.items():
        for line in lines.strip().splitlines():
            name, kind, unit, doc = (part.strip() for part in line.split("|"))
            names[name] = Name(name=name, kind=kind, unit=unit, phase=phase, doc=doc, choices=_CHOICES.get(name, ()))
    return names


VOCABULARY: Mapping[str, Name] = _read_table()

SETTINGS: Mapping[str, Name] = {name: VOCABULARY[name] for name in map(full_name, SETTING_NAMES)}
"""Settings that a card can set, by full name: degrees, knobs and options."""

REQUEST_ONLY = ("workload.precision", "workload.optimizer", "workload.global_batch")
"""Names that only the request determines and that may change the result of training."""

CONTROLS: Mapping[str, Name] = {**SETTINGS, **{name: VOCABULARY[name] for name in REQUEST_ONLY}}
"""Names that a card's control point can refer to."""

_FULL_NAMES = {name.partition(".")[2]: name for name in SETTINGS}


def setting(key: str) -> Name | None:
    """The setting named ``key``, bare (``tp``) or in full (``layout.tp``); None where there is none."""
    return SETTINGS.get(_FULL_NAMES.get(key, key))


def show_fact(name: str, value: Any) -> str:
    """A value as text in the unit of its name."""
    unit = VOCABULARY[name].unit
    if value is None:
        return "unknown"
    if isinstance(value, bool | str):
        return show_value(value)
    if unit in ("bytes", "bytes/s"):
        return show_bytes(value) + unit.removeprefix("bytes")
    if unit == "seconds":
        return show_seconds(value)
    if unit == "flop/s":
        return f"{value:.3g} FLOP/s"
    return f"{value:.0%}" if unit == "ratio" else show_count(value) if value >= 1e6 else f"{value:,.6g}"


def near_miss(word: str, known: Iterable[str]) -> str:
    """Suggestion for an error message: ``; did you mean x?`` where a known word is similar; else empty."""
    known, last_part = list(known), word.rpartition(".")[2]
    same_last_part = [name for name in known if name.rpartition(".")[2] == last_part]
    hint = did_you_mean(word, known) or did_you_mean(word, same_last_part, cutoff=0)
    return f"; {hint}" if hint else ""


def same_choice(left: Any, right: Any) -> bool:
    """Whether two values are equal and of the same type, so that 1 does not equal True."""
    return type(left) is type(right) and bool(left == right)
