"""Compulsory work of a step on the mean device: FLOPs and bytes that no implementation of a candidate can avoid."""

from strategist.contract.knobs import Candidate
from strategist.contract.model import ModelShape
from strategist.contract.stack import Stack
from strategist.contract.workload import Workload
from strategist.frozen import frozen

ATTENTION_BACKWARD = {"flash": 2.5, "unfused": 2.0}
"""FLOPs of attention's backward pass over its forward pass; flash attention recomputes the scores (arXiv 2307.08691, 4.1)."""

OPTIMIZER_STATE_BYTES = {"adamw": 8.0, "adamw_bf16": 4.0, "adamw8bit": 2.0, "muon": 2.0, "sgd": 0.0}
"""Smallest bytes of optimizer state per parameter; bf16 training may keep half of fp32's."""

MAX_CACHE_BYTES = 256 * 2**20
"""Largest last-level cache of a shipped device (MI300X): weights that fit are not read from memory again."""


@frozen
class BoundInputs:
    """All inputs of a bound, with derived sizes that several resources use."""

    model: ModelShape
    workload: Workload
    candidate: Candidate
    stack: Stack

    @property
    def micro_batches(self) -> int:
        """Micro-batches per step on each data rank."""
        return self.workload.global_batch // (self.candidate.layout.data_ranks * self.candidate.knobs.micro_batch)

    @property
    def tokens(self) -> float:
        """Tokens of one micro-batch on one rank."""
        return self.candidate.knobs.micro_batch * self.workload.seq_len / self.candidate.layout.cp

    @property
    def layers(self) -> float:
        """Layers per pipeline rank, mean over ranks: under any split the busiest rank has at least these."""
        return self.model.layers / self.candidate.layout.pp

    @property
    def frozen(self) -> bool:
        return self.workload.train != "full"

    @property
    def compute_bytes(self) -> float:
        """Bytes per element of the compute type."""
        return 4.0 if self.workload.precision == "fp32" else 2.0

    @property
    def experts_per_layer(self) -> float:
        """Parameters of routed experts, mean over layers."""
        moe = self.model.moe
        return 0.0 if moe is None else self.model.moe_layers * moe.experts * self.model.expert_parameters / self.model.layers

    @property
    def dense_per_layer(self) -> float:
        """Parameters of a layer that all tokens use, mean over layers."""
        m = self.model
        return (m.dense_layers * m.dense_layer_parameters + m.moe_layers * m.moe_layer_shared_parameters) / m.layers

    @property
    def embedding_and_head(self) -> float:
        """Parameters of embedding and head, mean over pipeline ranks."""
        return (self.model.embedding_parameters + self.model.head_parameters) / self.candidate.layout.pp

    @property
    def layer_share(self) -> float:
        """Parameters of one layer that a rank computes with: split by tp, experts by ep and etp."""
        layout = self.candidate.layout
        return self.dense_per_layer / layout.tp + self.experts_per_layer / (layout.ep * layout.etp)

    @property
    def shard(self) -> float:
        """Parameters in a rank's shard."""
        layout = self.candidate.layout
        per_rank = self.layers * (self.dense_per_layer + self.experts_per_layer) + self.embedding_and_head
        return per_rank / (layout.fsdp_ranks * layout.tp)


def forward_flops_per_token(s: BoundInputs) -> tuple[float, float, float]:
    """FLOPs of one token's forward pass: matmuls of the layers, the head, and masked attention."""
    m = s.model
    per_token = m.dense_layers * m.ffn_matrices * m.hidden_size * m.ffn_size + m.layers * _attention_matrices(m)
    if m.moe is not None:
        width = m.moe.expert_ffn_size * (m.moe.experts_per_token + m.moe.shared_experts)
        per_token += m.moe_layers * m.ffn_matrices * m.hidden_size * width
    visible = sum(layers * s.workload.visible_tokens(window) for window, layers in m.windows.items())
    return 2.0 * per_token, 2.0 * m.vocab_size * m.hidden_size, 2.0 * visible * (m.query_width + m.attended_width)


def step_flops(s: BoundInputs) -> tuple[float, float]:
    """FLOPs of a step over all devices, of matmuls and of attention.

    Includes the matmuls that full recomputation repeats, except the last matmul of a layer, whose output no gradient needs.
    """
    layers, head, attention = forward_flops_per_token(s)
    recomputed = _recomputed_share(s)
    m, backward = s.model, 1.0 if s.frozen else 2.0
    last_matmul = 2.0 * m.hidden_size * (m.dense_layers * m.ffn_size + (m.moe.expert_ffn_size * m.moe_layers if m.moe else 0))
    matmul = layers * (1 + backward) + head * (1 + backward) + recomputed * max(layers - last_matmul, 0.0)
    return s.workload.tokens_per_step * matmul, s.workload.tokens_per_step * attention * (1 + ATTENTION_BACKWARD[s.stack.attention])


def memory_bytes(s: BoundInputs) -> float:
    """Bytes that the mean device moves in its own memory: weights that exceed the cache, read twice per micro-batch; saved inputs
    of layers and optimizer states, written and read.

    Optimizer states count only where the device updates them.
    """
    knobs, workload = s.candidate.knobs, s.workload
    weight = 1.0 if knobs.float8 != "none" else s.compute_bytes
    weight_bytes = s.layers * _parameters_read(s) * weight
    weight_reads = s.micro_batches * 2 * max(weight_bytes - MAX_CACHE_BYTES, 0.0)
    shards = s.candidate.layout.tp if knobs.sequence_parallel else 1
    inputs = s.micro_batches * 2 * s.layers * s.tokens * s.model.hidden_size * s.compute_bytes / shards
    activation_bytes = max(inputs - MAX_CACHE_BYTES, 0.0)
    optimizer_bytes = 0.0 if s.frozen or knobs.offload != "none" else s.shard * 2 * OPTIMIZER_STATE_BYTES[workload.optimizer]
    if workload.precision == "bf16-true":
        optimizer_bytes = min(optimizer_bytes, s.shard * 2 * 2.0)
    return weight_reads + activation_bytes + max(optimizer_bytes - MAX_CACHE_BYTES, 0.0)


def host_bytes(s: BoundInputs) -> float:
    """Bytes over a device's link to its host in the busier direction: offloaded parameters, each time they are needed.

    Offloaded activations and optimizer states are not counted.
    """
    knobs = s.candidate.knobs
    stored = min(s.compute_bytes, 0.5) if s.workload.train == "qlora" else s.compute_bytes
    state = {
        "all": gathers_per_step(s) * s.shard,
        "streamed": 2.0 * (s.layers * s.layer_share + s.embedding_and_head / s.candidate.layout.tp),
    }
    return stored * state.get(knobs.offload, 0.0)


def gathers_per_step(s: BoundInputs) -> float:
    """Number of all-gathers of each layer's parameters in a step.

    Two per micro-batch (forward and backward) where parameters are freed after the forward pass; one per step where they stay
    gathered or one gather serves all micro-batches. A pipeline frees no parameters after a backward pass (torch's stages turn that
    off until the last one), so a backward pass and the forward pass after it share one gather, and the first pass adds one. Where a
    subgroup keeps them after a forward pass, only the first pass gathers from all ranks.
    """
    layout, knobs = s.candidate.layout, s.candidate.knobs
    stays_gathered = knobs.reshard_after_forward is False or (knobs.reshard_after_forward == "subgroup" and layout.pp > 1)
    if stays_gathered and knobs.no_sync:
        return 1.0
    passes = 2.0 if knobs.reshard_after_forward is True else 1.0
    if knobs.pp_schedule == "looped_bfs":
        return passes
    return s.micro_batches + 1.0 if layout.pp > 1 and passes > 1 else passes * s.micro_batches


def embedding_gathers_per_step(s: BoundInputs) -> float:
    """All-gathers of embedding and head in a step: FSDP2 frees its root, which holds them, after the backward pass only."""
    knobs = s.candidate.knobs
    if s.candidate.layout.pp > 1 and knobs.no_sync:
        return 1.0
    return gathers_per_step(s) / 2 if knobs.reshard_after_forward is True else gathers_per_step(s)


def _recomputed_share(s: BoundInputs) -> float:
    """Share of the layers' forward pass that every implementation recomputes."""
    return {"full": 1.0, "every_second_layer": (s.model.layers // 2) / s.model.layers}.get(s.candidate.knobs.recompute, 0.0)


def _parameters_read(s: BoundInputs) -> float:
    """Parameters of one layer that a rank reads per micro-batch; of experts at most those that its tokens select."""
    layout, moe = s.candidate.layout, s.model.moe
    if moe is None:
        return s.layer_share
    tokens = s.tokens if layout.etp > 1 else s.tokens / layout.tp
    expert_share = min(tokens * layout.ep * moe.experts_per_token, float(moe.experts)) / moe.experts
    return s.dense_per_layer / layout.tp + expert_share * s.experts_per_layer / (layout.ep * layout.etp)


def _attention_matrices(m: ModelShape) -> int:
    """Weights of one layer's attention that are multiplied with every token."""
    h = m.hidden_size
    if m.mla is None:
        return 2 * h * m.heads * m.head_size + 2 * h * m.kv_heads * m.head_size
    a = m.mla
    queries = h * a.query_rank + a.query_rank * m.query_width if a.query_rank else h * m.query_width
    latent = h * (a.key_value_rank + a.rope_head_size) + a.key_value_rank * m.heads * (a.nope_head_size + a.value_head_size)
    return queries + latent + m.attended_width * h
