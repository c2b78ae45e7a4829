"""Options: settings that the cost model does not distinguish; cards resolve them for each plan."""

from collections.abc import Iterator
from dataclasses import fields

from strategist.contract.layout import Layout
from strategist.frozen import frozen

KnobValue = bool | int | str

OPTION_CHOICES: dict[str, tuple[KnobValue, ...]] = {
    "gradient_as_bucket_view": (False, True),
    "static_graph": (False, True),
    "find_unused_parameters": (False, True),
    "reshard_root": (False, True),
    "shard_placement": ("dim0", "largest"),
    "pin_memory": (True, False),
    "async_tp": (False, True),
    "cp_attention": ("sdpa", "flex"),
    "cp_rotate": ("allgather", "alltoall"),
    "cp_load_balance": ("head_tail", "per_document", "none"),
    "cp_restore_buffers": (True, False),
    "grouped_gemm": (False, True),
    "expert_balance": ("auxiliary_loss", "bias"),
    "pp_split": ("even", "weighted"),
    "fullgraph": (False, True),
    "optimizer_kernel": ("foreach", "fused", "for_loop"),
    "checkpoint": ("sync", "async", "async_pinned"),
    "nccl_algorithm": ("auto", "ring", "tree"),
    "nccl_p2p": ("auto", "off"),
    "nccl_nvls": ("auto", "off"),
    "expandable_segments": (False, True),
    "rendezvous": ("static", "c10d"),
}
"""Allowed values of options with a closed set of values; all other options are whole numbers."""

CONVERGENCE_OPTIONS: dict[str, KnobValue] = {"expert_balance": "auxiliary_loss"}
"""Options that can change the result of training, with the value that doesn't."""


@frozen
class Options:
    """Settings without an effect on the price. The cards' policies resolve them one by one, in the order given here.

    bucket_cap_mb: DDP's gradient bucket in MiB. All defaults are torch's.
    gradient_as_bucket_view, static_graph, find_unused_parameters: DDP's arguments of the same names.
    reshard_root: FSDP2 frees the root's parameters (embedding, final norm, head) after forward.
    shard_placement: dimension along which FSDP2 shards a parameter: the first, or the largest that divides evenly.
    layers_per_unit: decoder layers that FSDP2 gathers together.
    prefetch_units: units prefetched explicitly; 1 is FSDP2's default.
    pin_memory: offloaded tensors are in page-locked host memory.
    async_tp: matmuls and collectives of tensor parallelism are split and overlapped through symmetric memory.
    cp_attention, cp_rotate, cp_load_balance, cp_restore_buffers: context parallelism: attention kernel, how keys and values are
        exchanged, how causal work is balanced, and whether the sharded buffers are restored after the step.
    grouped_gemm: all experts of a rank in one matmul. token_alignment: tokens of an expert are padded to a multiple of this.
    expert_balance: an auxiliary loss, or a bias on the router's scores (arXiv 2408.15664).
    pp_split: pipeline stages with equal numbers of layers, or with embedding and head weighted by their cost.
    fullgraph: a compiled block must be one graph.
    optimizer_kernel: implementation of torch.optim: foreach, fused or for_loop.
    checkpoint: torch.distributed.checkpoint blocks training (sync), writes from a copy (async), or from a pinned copy.
    checkpoint_interval: steps between checkpoints.
    nccl_algorithm, nccl_p2p, nccl_nvls, nccl_socket_threads: NCCL_ALGO, NCCL_P2P_DISABLE, NCCL_NVLS_ENABLE, NCCL_SOCKET_NTHREADS.
    cuda_connections: CUDA_DEVICE_MAX_CONNECTIONS, the hardware queues of a device.
    expandable_segments: the caching allocator uses expandable segments (PYTORCH_CUDA_ALLOC_CONF).
    rendezvous, max_restarts: torchrun's --rdzv-backend and --max-restarts.
    """

    bucket_cap_mb: int = 25
    gradient_as_bucket_view: bool = False
    static_graph: bool = False
    find_unused_parameters: bool = False
    reshard_root: bool = False
    shard_placement: str = "dim0"
    layers_per_unit: int = 1
    prefetch_units: int = 1
    pin_memory: bool = True
    async_tp: bool = False
    cp_attention: str = "sdpa"
    cp_rotate: str = "allgather"
    cp_load_balance: str = "head_tail"
    cp_restore_buffers: bool = True
    grouped_gemm: bool = False
    token_alignment: int = 1
    expert_balance: str = "auxiliary_loss"
    pp_split: str = "even"
    fullgraph: bool = False
    optimizer_kernel: str = "foreach"
    checkpoint: str = "sync"
    checkpoint_interval: int = 1000
    nccl_algorithm: str = "auto"
    nccl_p2p: str = "auto"
    nccl_nvls: str = "auto"
    nccl_socket_threads: int = 1
    cuda_connections: int = 8
    expandable_segments: bool = False
    rendezvous: str = "static"
    max_restarts: int = 0

    def violations(self, layout: Layout, *, sequence_parallel: bool, compiled: bool) -> Iterator[str]:
        """Constraints that these options violate, alone or together with other settings, each as a sentence with the values."""
        for name, choices in OPTION_CHOICES.items():
            if not any(type(getattr(self, name)) is type(choice) and getattr(self, name) == choice for choice in choices):
                yield f"{name} {getattr(self, name)} is not one of {', '.join(map(str, choices))}"
        for name in OPTION_NAMES:
            if name not in OPTION_CHOICES and getattr(self, name) < OPTION_MINIMA.get(name, 1):
                yield f"{name} {getattr(self, name)} must be at least {OPTION_MINIMA.get(name, 1)}"
        yield from self.broken_laws(layout, sequence_parallel=sequence_parallel, compiled=compiled)

    def broken_laws(self, layout: Layout, *, sequence_parallel: bool, compiled: bool) -> Iterator[str]:
        """Violated constraints between settings; each value may be allowed by itself."""
        if self.async_tp and not (layout.tp > 1 and sequence_parallel and compiled):
            yield "async_tp needs tp above 1, sequence_parallel and compile"
        if self.cp_load_balance == "per_document" and self.cp_attention != "flex":
            yield "cp_load_balance per_document needs cp_attention flex"
        if self.cp_attention == "flex" and self.cp_rotate == "alltoall":
            yield "cp_attention flex gathers keys and values: cp_rotate must be allgather"
        if self.fullgraph and not compiled:
            yield "fullgraph needs compile"
        if self.checkpoint == "async_pinned" and not self.pin_memory:
            yield "checkpoint async_pinned needs pin_memory"


OPTION_NAMES = tuple(field.name for field in fields(Options))

OPTION_MINIMA = {"max_restarts": 0}
"""Smallest value of options that are whole numbers, where it is not 1."""


def acts(name: str, layout: Layout, *, offloads: bool, streamed: bool, compiled: bool, experts: bool) -> bool:
    """Whether the option has an effect, given the layout, offload, compilation and experts."""
    ddp = layout.dp_replicate > 1 and layout.fsdp_ranks == 1 and layout.tp == 1 and layout.pp == 1
    sharded, context = layout.fsdp_ranks > 1, layout.cp > 1
    needs = {
        **dict.fromkeys(("bucket_cap_mb", "gradient_as_bucket_view", "static_graph", "find_unused_parameters"), ddp),
        **dict.fromkeys(("reshard_root", "shard_placement", "layers_per_unit", "prefetch_units"), sharded),
        **dict.fromkeys(("cp_attention", "cp_rotate", "cp_load_balance", "cp_restore_buffers"), context),
        **dict.fromkeys(("grouped_gemm", "token_alignment", "expert_balance"), experts),
        "pin_memory": offloads,
        "async_tp": layout.tp > 1,
        "pp_split": layout.pp > 1 and not streamed,
        "fullgraph": compiled,
    }
    return needs.get(name, True)
