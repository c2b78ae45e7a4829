"""Stack: properties of a framework's implementation that no setting states: memory per parameter, kernels, overlap."""

from dataclasses import field, replace

from strategist.contract.loss import Loss
from strategist.contract.memory_traits import TORCH_MEMORY_TRAITS, MemoryTraits
from strategist.contract.options import Options
from strategist.errors import not_among
from strategist.frozen import frozen

FAMILIES = ("torch", "megatron", "own")
ATTENTION = ("flash", "unfused")
ATTENTION_KERNELS = ("first", "portable", "tuned", "tuned_on_blackwell")
WINDOWS = ("skipped", "masked")
ELEMENTWISE = ("eager", "fused")
GRAPHS = ("none", "layers", "step")
DISPATCH = ("choices", "ranks")
COLLECTIVES = ("nccl", "copies")
UPDATES = ("host", "device")
RING_GRADIENTS = ("fp32", "computed")
RING_KEYS = ("gathered", "passed")
EXPERTS = ("grouped", "streams", "sliced")
RECOMPUTES = ("all", "needed")
ADAPTERS = ("all", "attention", "query_key_value", "query_value")
ACCUMULATIONS = ("kernels", "matmuls")


@frozen
class Stack:
    """Properties of a framework's implementation that no setting of a plan states.

    family: framework family whose measurements apply where the stack has none: ``torch`` (FSDP, DDP, eager modules), ``megatron``
        (its layers, buckets and pipelines), or ``own``.
    measured_as: stack whose published runs give the factors of this one, which has none of its own; empty for none.
    attention: ``flash`` never materialises the scores, ``unfused`` saves them for the backward pass (arXiv 2205.05198, section
        4.1).
    attention_kernels: FlashAttention as of 2022 (``first``), FlashAttention-2 (``portable``), or kernels ``tuned`` to each chip
        (cuDNN, FlashAttention-3 and 4), on all chips or from Blackwell on (``tuned_on_blackwell``).
    recomputes_attention: where a layer is not recomputed otherwise, its attention between the projections is computed again for the
        backward pass, and its scores are not saved (arXiv 2205.05198, section 5; Megatron-Core's module ``core_attn``).
    windows: where layers have sliding windows, kernels of flash attention compute only the tiles inside them (``skipped``:
        FlashAttention, cuDNN, FlexAttention), or all pairs of the sequence under a mask (``masked``: transformers with SDPA,
        whose flash kernels take no mask).
    elementwise: one kernel per operation (``eager``), or one kernel for all operations between two matmuls (``fused``).
    gradient_bytes: bytes per parameter of gradients between micro-batches.
    accumulation: gradients are added to those of earlier micro-batches by ``kernels`` of their own, or by the ``matmuls`` that
        compute them (Megatron: ``gradient_accumulation_fusion``).
    loss: properties of the loss.
    rotary_bytes: bytes per value of queries and keys (2 bytes each) that eager kernels move for rotary positions, in each pass.
    tile_tokens: feed-forwards process the sequence in tiles of this many tokens (0: at once). tiles_recompute: each tile is
        recomputed for its backward pass (arXiv 2506.13996, section 3.3); else all tiles' saved tensors are live together, and their
        gradients are computed one by one.
    graphs: kernels launched as CUDA graphs: none, those of layers except experts (``layers``), or all of a ``step``.
    dispatch: a token is sent once for each of its expert ``choices``, or once to each of the ``ranks`` that hold some of them
        (arXiv 2412.19437, section 3.2.2).
    casts_once: weights are cast to float8 once per step, not in each pass of each micro-batch.
    fp16_sums: matmuls in fp16 also accumulate in fp16 (torch's ``allow_fp16_accumulation``), which is faster on consumer cards.
    hides_reductions: gradient reductions overlap with the backward pass.
    bucket_bytes: bytes of gradients, in the type of the parameters, that plain replicas reduce in one collective, as soon as they
        exist: DDP's buckets of 25 MiB (torch/nn/parallel/distributed.py: ``bucket_cap_mb``); 0 where one collective reduces all.
    hides_resharded_reductions: they do in any case where parameters are resharded after the forward pass (DeepSpeed's ZeRO-3).
    collectives: ``nccl`` kernels, or ``copies`` by the devices' copy engines, which without peer access go through host memory at
        the rate of each device's own link.
    ring_keys: keys and values of other context-parallel ranks are ``gathered`` beside the first block of attention (torch's
        ``set_rotate_method("allgather")``, its default), or ``passed`` from rank to rank, each beside the block before it.
    ring_gradients: the type in which gradients of keys and values are sent between context-parallel ranks: ``fp32``, from the first
        rank around to the first, as in torch's ring attention, or the compute type (``computed``).
    offloaded_update: offloaded optimizer states are updated by the ``host``, or by the ``device``, to which they are copied and
        back.
    contended_update: time of the host's update where several ranks of a node share its cores, over that with cores bound to ranks.
    experts: experts of a layer run together (``grouped``), in separate kernels on several ``streams``, or one by one, as slices of
        one parameter (``sliced``).
    adapters: linears with low-rank adapters: ``all`` of attention and of dense feed-forwards, those of ``attention`` only, its one
        linear of queries, keys and values (``query_key_value``), or its queries and values (``query_value``).
    casts_adapters: adapters are in fp32, so that each casts its input, of which a dropout leaves out a share, and autocast casts it
        back (PEFT).
    recomputes: activation checkpointing recomputes ``all`` of a layer, or what is ``needed`` for its saved tensors, which leaves
        out a dense layer's last matmul and its residual addition (torch.utils.checkpoint with ``use_reentrant=False``:
        ``early_stop``).
    unpacking_bytes: bytes per 4-bit weight that dequantization moves beyond a single kernel, where layers are not compiled.
    gathers_normed_heads: under tensor parallelism each rank gathers the queries and keys of all heads before their norms, and
        computes norms and rotary positions of all of them (torchtitan's Qwen3 before 8c1d1c5fc of 2025-10-14).
    copies_pieces: where optimizer states are sharded and parameters are not, each rank's piece of each updated parameter is copied
        by a kernel of its own after the all-gather (nanotron/distributed.py: all_gather_coalesced).
    scales_in_update: AdamW's kernel applies the clipping factor to gradients as it reads them.
    memory_traits: use of device memory.
    """

    name: str = "torch"
    family: str = "torch"
    measured_as: str = ""
    attention: str = "flash"
    attention_kernels: str = "portable"
    recomputes_attention: bool = False
    windows: str = "skipped"
    elementwise: str = "eager"
    gradient_bytes: float = 4.0
    accumulation: str = "kernels"
    rotary_bytes: float = 20.0
    loss: Loss = field(default_factory=Loss)
    tile_tokens: float = 0.0
    tiles_recompute: bool = False
    graphs: str = "none"
    dispatch: str = "choices"
    casts_once: bool = False
    fp16_sums: bool = False
    hides_reductions: bool = True
    bucket_bytes: float = 25 * 2.0**20
    hides_resharded_reductions: bool = False
    collectives: str = "nccl"
    ring_keys: str = "gathered"
    ring_gradients: str = "fp32"
    offloaded_update: str = "host"
    contended_update: float = 1.0
    experts: str = "grouped"
    adapters: str = "all"
    casts_adapters: bool = False
    recomputes: str = "all"
    unpacking_bytes: float = 0.0
    gathers_normed_heads: bool = False
    copies_pieces: bool = False
    scales_in_update: bool = False
    memory_traits: MemoryTraits = TORCH_MEMORY_TRAITS
    source: str = ""

    def __post_init__(self) -> None:
        closed = {
            "family": FAMILIES,
            "attention": ATTENTION,
            "attention_kernels": ATTENTION_KERNELS,
            "windows": WINDOWS,
            "elementwise": ELEMENTWISE,
            "graphs": GRAPHS,
            "dispatch": DISPATCH,
            "collectives": COLLECTIVES,
            "ring_keys": RING_KEYS,
            "ring_gradients": RING_GRADIENTS,
            "offloaded_update": UPDATES,
            "experts": EXPERTS,
            "adapters": ADAPTERS,
            "accumulation": ACCUMULATIONS,
            "recomputes": RECOMPUTES,
        }
        for name, allowed in closed.items():
            if getattr(self, name) not in allowed:
                raise not_among(f"stack {self.name}: {name} {getattr(self, name)}", str(getattr(self, name)), allowed)


NATIVE = Stack(
    name="native",
    recomputes="needed",
    attention_kernels="tuned",
    rotary_bytes=53.0,
    unpacking_bytes=20.0,
    scales_in_update=True,
)
"""Stack of the native back end: torch's own parallel APIs on eager PyTorch.

torch 2.11 uses attention kernels tuned to the chip: 523 TFLOP/s forward and backward at 8,192 tokens on an H200, 0.53 of its peak
(profiles/measurements/rows/h200.jsonl). Dequantization of 4-bit weights goes through 32-bit codes and levels: 22.5 bytes a weight
instead of 2.5 (strategist_runtime/model/nf4.py).
"""

NATIVE_FOREACH = replace(NATIVE, scales_in_update=False, memory_traits=replace(TORCH_MEMORY_TRAITS, foreach=True))
"""The same stack with AdamW as foreach kernels: one kernel per operation over all parameters."""


def native_stack(options: Options, optimizer: str) -> Stack:
    """Stack of the native back end for this optimizer and its kernel."""
    return NATIVE_FOREACH if optimizer == "adamw" and options.optimizer_kernel == "foreach" else NATIVE
