"""Machine: measurements of the local machine, as its ranks recorded them."""

from dataclasses import field

from strategist.frozen import frozen

BUS_FACTORS = {
    "all_reduce": (2, -2), "reduce_scatter": (1, -1), "all_gather": (1, -1), "all_to_all": (1, -1),
    "gather": (1, -1), "scatter": (1, -1), "broadcast": (1, 0), "reduce": (1, 0), "p2p": (1, 0),
}  # fmt: skip
"""(a, b): message rate times (a + b / n) is the bus bandwidth of ``n`` ranks, as nccl-tests defines it (doc/PERFORMANCE.md)."""


LAYER_KERNELS = 175
"""Kernels of an eager decoder layer, forward and backward, as the cost model counts them (``cost.work``)."""


@frozen
class MatmulSample:
    """One timed matmul [rows, inner] x [inner, columns], including the allocation of its output."""

    dtype: str
    rows: int
    inner: int
    columns: int
    seconds: float

    @property
    def flops(self) -> float:
        return 2.0 * self.rows * self.inner * self.columns

    @property
    def rate(self) -> float:
        """Achieved FLOP/s."""
        return self.flops / self.seconds


@frozen
class AttentionSample:
    """Timed causal attention over sequences of ``seq_len`` tokens, forward and backward together."""

    dtype: str
    batch: int
    heads: int
    seq_len: int
    head_size: int
    seconds: float

    @property
    def flops(self) -> float:
        """FLOPs of a causal kernel: 2 matmuls forward over half of the scores, 2.5 times as many backward."""
        return 3.5 * 2.0 * self.batch * self.heads * self.seq_len**2 * self.head_size


@frozen
class CollectiveSample:
    """One timed collective of ``ranks`` ranks, with all groups of that size at once.

    ``message_bytes`` is the whole gathered or reduced message.
    """

    collective: str
    ranks: int
    message_bytes: int
    seconds: float

    @property
    def bus_bytes_per_second(self) -> float:
        whole, share = BUS_FACTORS[self.collective]
        return self.message_bytes / self.seconds * (whole + share / self.ranks)


@frozen
class MachineRecord:
    """Measurements of all ranks at once, so that shared resources count as shared.

    Seconds are the mean over ranks; of a collective, the slowest rank's. Bandwidths are in bytes/s per rank, except
    ``host_optimizer_bytes_per_second``, which is the sum over all ranks.

    layer_seconds: a decoder layer with negligible computation, forward and backward: the time to launch its kernels.
    streaming_bytes_per_second: with an existing output tensor. elementwise_bytes_per_second: with a newly allocated output.
    """

    device_kind: str
    device_name: str
    ranks: int
    memory_bytes: int
    usable_memory_bytes: int
    matmuls: tuple[MatmulSample, ...]
    attention: tuple[AttentionSample, ...]
    streaming_bytes_per_second: float
    elementwise_bytes_per_second: float
    layer_seconds: float
    host_bytes_per_second: float
    host_optimizer_bytes_per_second: float
    collectives: tuple[CollectiveSample, ...]
    topology: str = ""
    wall_seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)
