"""Stack: how a framework carries a layout out: what it keeps of each parameter, and which kernels it runs."""

from dataclasses import dataclass

from strategist.errors import InputError

KINS = ("torch", "megatron", "own")
ATTENTION = ("flash", "unfused")
ELEMENTWISE = ("eager", "fused")


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Facts of a framework that no setting of a plan says.

    ``kin``: whose way of working it shares where nobody measured it itself: ``torch`` (FSDP, DDP, eager modules), ``megatron`` (its
    layers, buckets and pipelines), or ``own``.

    ``attention``: ``flash`` never writes the scores out, ``unfused`` keeps them for the backward pass (arXiv 2205.05198, section
    4.1).
    ``elementwise``: one kernel an operation, or one for what lies between two matmuls. ``gradient_bytes`` a parameter, in which
    gradients are kept between micro-batches. ``logit_bytes`` live for each logit at the start of the backward pass.
    ``activation_factor`` scales what layers keep: norms in fp32 and copies that a framework makes. ``parameter_copies``: further
    bytes a parameter, for whole buffers that a framework holds.
    """

    name: str = "torch"
    kin: str = "torch"
    attention: str = "flash"
    elementwise: str = "eager"
    gradient_bytes: float = 4.0
    logit_bytes: float = 12.0
    activation_factor: float = 1.0
    source: str = ""

    def __post_init__(self) -> None:
        for name, allowed in (("kin", KINS), ("attention", ATTENTION), ("elementwise", ELEMENTWISE)):
            if getattr(self, name) not in allowed:
                raise InputError(
                    f"stack {self.name}: {name} {getattr(self, name)}", "is not known", f"choose {' or '.join(allowed)}"
                )


TORCH = Stack()
"""torch's own parallel APIs on eager PyTorch: what the native back end runs."""
