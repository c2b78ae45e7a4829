"""Stack: properties of a framework's implementation that no setting states: memory per parameter, kernels, overlap."""

from dataclasses import dataclass, field, replace

from strategist.contract.loss import Loss
from strategist.contract.memory_traits import TORCH_MEMORY_TRAITS, MemoryTraits
from strategist.contract.options import Options
from strategist.errors import not_among

FAMILIES = ("torch", "megatron", "own")
ATTENTION = ("flash", "unfused")
ATTENTION_KERNELS = ("portable", "tuned")
ELEMENTWISE = ("eager", "fused")
GRAPHS = ("none", "layers", "step")
DISPATCH = ("choices", "ranks")
COLLECTIVES = ("nccl", "copies")
UPDATES = ("host", "device")
RING_GRADIENTS = ("fp32", "computed")
EXPERTS = ("grouped", "streams", "sliced")
RECOMPUTES = ("all", "needed")
ADAPTERS = ("all", "attention", "query_value")


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Facts of a framework that no setting of a plan says.

    ``family``: the family whose measurements it uses without its own: ``torch`` (FSDP, DDP, eager modules), ``megatron`` (its
    layers, buckets and pipelines), or ``own``.

    ``attention``: ``flash`` never writes the scores out, ``unfused`` keeps them for the backward pass (arXiv 2205.05198, section
    4.1). ``attention_kernels``: FlashAttention-2's, or those ``tuned`` to each chip (cuDNN, FlashAttention-3 and 4).
    ``elementwise``: one kernel an operation, or one for what lies between two matmuls. ``gradient_bytes`` a parameter, in which
    gradients are kept between micro-batches. ``rotary_bytes``: what eager kernels move forward, and again backward, of each value
    of queries and keys (of 2 bytes) to turn it by its position. ``loss``: what it takes of memory. ``tile_tokens``: feed-forwards
    run tile by tile along the sequence, of so many tokens (0: at once); ``tiles_recompute``: each tile is made again for its
    backward pass (arXiv 2506.13996, section 3.3), else all that they save lives together and their gradients come one by one.
    ``activation_factor`` scales what layers keep: norms in fp32 and copies that a framework makes. ``parameter_copies``: further
    bytes a parameter, for whole buffers that a framework holds.
    ``graphs``: kernels that are launched together as CUDA graphs: none, those of layers but for their experts, or all of a step.
    ``dispatch``: a token travels once to each expert of its ``choices``, or once to each of the ``ranks`` that hold some of them
    (arXiv 2412.19437, section 3.2.2).
    ``casts_once``: weights are cast to float8 once a step, not in each pass of each micro-batch.
    ``fp16_sums``: matmuls in fp16 add up in fp16, too (torch's ``allow_fp16_accumulation``), which consumer cards do faster.
    ``hides_reductions``: gradients are reduced beside the backward pass. ``collectives``: kernels of ``nccl``, or ``copies`` by the
    devices' copy engines, which without peer access go through host memory at the rate of each device's own link.
    ``ring_gradients``: the type in which gradients of keys and values go around between context-parallel ranks: ``fp32``, from the
    first rank back to the first, as in torch's ring, or the one that is ``computed`` in.
    ``offloaded_update``: states in host memory are updated by the ``host``, or by the ``device``, through which they travel.
    ``experts`` of a layer run together (``grouped``), in kernels of their own on several ``streams``, or one by one, as
    slices of one parameter (``sliced``).
    ``adapters``: the linears that low-rank adapters are on: ``all`` of attention and of dense feed-forwards, those of ``attention``
    alone, or of its queries and values.
    ``recomputes``: checkpoints run ``all`` of a layer again, or what is ``needed`` to make its saved tensors, which leaves out a
    dense layer's last matmul and its sum (torch.utils.checkpoint with ``use_reentrant=False``: ``early_stop``).
    ``unpacking_bytes``: what restoring a weight of 4 bits moves more than one kernel does, where layers are not compiled.
    ``scales_in_update``: AdamW's kernel multiplies the gradients that it reads by the factor that clips them.
    ``memory_traits``: what it keeps in device memory.
    """

    name: str = "torch"
    family: str = "torch"
    attention: str = "flash"
    attention_kernels: str = "portable"
    elementwise: str = "eager"
    gradient_bytes: float = 4.0
    rotary_bytes: float = 20.0
    loss: Loss = field(default_factory=Loss)
    tile_tokens: float = 0.0
    tiles_recompute: bool = False
    activation_factor: float = 1.0
    graphs: str = "none"
    dispatch: str = "choices"
    casts_once: bool = False
    fp16_sums: bool = False
    hides_reductions: bool = True
    collectives: str = "nccl"
    ring_gradients: str = "fp32"
    offloaded_update: str = "host"
    experts: str = "grouped"
    adapters: str = "all"
    recomputes: str = "all"
    unpacking_bytes: float = 0.0
    scales_in_update: bool = False
    memory_traits: MemoryTraits = TORCH_MEMORY_TRAITS
    source: str = ""

    def __post_init__(self) -> None:
        closed = {
            "family": FAMILIES,
            "attention": ATTENTION,
            "attention_kernels": ATTENTION_KERNELS,
            "elementwise": ELEMENTWISE,
            "graphs": GRAPHS,
            "dispatch": DISPATCH,
            "collectives": COLLECTIVES,
            "ring_gradients": RING_GRADIENTS,
            "offloaded_update": UPDATES,
            "experts": EXPERTS,
            "adapters": ADAPTERS,
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
