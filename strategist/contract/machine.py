"""Machine: measurements of the local machine, as its ranks recorded them."""

from dataclasses import dataclass, field

BUS_FACTORS = {
    "all_reduce": (2, -2), "reduce_scatter": (1, -1), "all_gather": (1, -1), "all_to_all": (1, -1),
    "gather": (1, -1), "scatter": (1, -1), "broadcast": (1, 0), "reduce": (1, 0), "p2p": (1, 0),
}  # fmt: skip
"""(a, b) of a + b / n: by it the rate of ``n`` ranks becomes bus bandwidth, as nccl-tests defines it (doc/PERFORMANCE.md)."""


LAYER_KERNELS = 175
"""Those of an eager decoder layer, forward and backward, as prices count them (``cost.work``)."""


@dataclass(frozen=True, kw_only=True)
class MatmulSample:
    """One matmul [rows, inner] x [inner, columns], with the output made anew."""

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
        """FLOP/s."""
        return self.flops / self.seconds


@dataclass(frozen=True, kw_only=True)
class AttentionSample:
    """Causal attention over sequences of ``seq_len``, forward and backward together."""

    dtype: str
    batch: int
    heads: int
    seq_len: int
    head_size: int
    seconds: float

    @property
    def flops(self) -> float:
        """Those that a causal kernel does: 2 matmuls forward over half of the scores, 2.5 times as much backward."""
        return 3.5 * 2.0 * self.batch * self.heads * self.seq_len**2 * self.head_size


@dataclass(frozen=True, kw_only=True)
class CollectiveSample:
    """One collective of ``ranks`` ranks, all groups of that size at once; the message is the whole that is gathered or reduced."""

    collective: str
    ranks: int
    message_bytes: int
    seconds: float

    @property
    def bus_bytes_per_second(self) -> float:
        whole, share = BUS_FACTORS[self.collective]
        return self.message_bytes / self.seconds * (whole + share / self.ranks)


@dataclass(frozen=True, kw_only=True)
class MachineRecord:
    """All ranks measure at once, so that what they share counts as shared; seconds are the mean over them, of a collective the
    slowest's. Bandwidths in bytes/s, of each rank but ``host_optimizer_bytes_per_second``, which is of all together.

    ``layer_seconds`` are those of a decoder layer, forward and backward, that hardly computes: what launching it takes.
    ``streaming_bytes_per_second`` is reached where the output exists, ``elementwise_bytes_per_second`` where it is made anew.
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
