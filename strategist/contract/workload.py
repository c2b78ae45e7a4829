"""Workload: batch, sequence length, precision, optimizer and training mode."""

from strategist.contract.codec import added, shared
from strategist.errors import InputError, not_among
from strategist.frozen import frozen

TRAIN_MODES = ("full", "lora", "qlora")
PRECISIONS = ("bf16", "fp16", "fp32", "bf16-true")
OPTIMIZERS = ("adamw", "adamw_bf16", "adamw8bit", "muon", "sgd")
FLOAT8 = "is the precision of matmuls only, which --allow float8 takes"


@shared
@frozen
class Workload:
    """A step of ``global_batch`` sequences of ``seq_len`` tokens, with its precision, optimizer and training mode.

    precision: compute type of matmuls: ``bf16`` and ``fp16`` keep parameters, gradients and optimizer states in fp32 (mixed
        precision, arXiv 1710.03740), ``fp32`` also computes in fp32, and ``bf16-true`` keeps all three in bf16.
    train: full, lora or qlora. lora_rank: for lora and qlora only.
    document_tokens: mean length of the documents packed into a sequence, which do not attend to each other (arXiv 2107.02027); 0
        where a sequence is one document.
    """

    seq_len: int = 4096
    global_batch: int = 64
    precision: str = "bf16"
    optimizer: str = "adamw"
    train: str = "full"
    lora_rank: int = 16
    document_tokens: int = added(0)

    def __post_init__(self) -> None:
        for name in ("seq_len", "global_batch", "lora_rank"):
            value = getattr(self, name)
            if not hasattr(value, "__index__"):
                raise InputError(f"{name} {value!r}", f"is of the type {type(value).__name__}", f"write e.g. {name}=16")
            if value < 1:
                raise InputError(f"--{name.replace('_', '-')} {value}", "must be at least 1", "give a positive number")
        if self.document_tokens < 0:
            raise InputError(f"--document-tokens {self.document_tokens}", "is a mean length in tokens", "give a positive number")
        for name, allowed in (("precision", PRECISIONS), ("optimizer", OPTIMIZERS), ("train", TRAIN_MODES)):
            value = getattr(self, name)
            if value not in allowed:
                law = FLOAT8 if str(value).lower() in ("fp8", "float8") else "is not known"
                raise not_among(f"--{name} {value}", str(value), allowed, law)

    @property
    def compute_dtype(self) -> str:
        """Compute type of matmuls."""
        return self.precision.removesuffix("-true")

    @property
    def attended_tokens(self) -> float:
        """Length of a token's document, mean over tokens: E[L^2] / E[L] for lengths L distributed uniformly around their mean, as
        in synthetic text; the sequence length where a sequence is one document.
        """
        return min(float(self.seq_len), (4 * self.document_tokens - 1) / 3 if self.document_tokens else float(self.seq_len))

    def visible_tokens(self, window: int = 0) -> float:
        """Mean number of tokens that a token attends to, under a causal mask and at most the last ``window`` (0: all).

        The sum of min(position, window) over the positions of a document, over its length; lengths as in ``attended_tokens``.
        """
        length = self.attended_tokens
        is_packed = length < self.seq_len
        longest = 1.5 * length if is_packed else length
        if not 0 < window < longest:
            return length / 2
        share = window / longest
        return window * (1 - share + share * share / 3 if is_packed else 1 - share / 2)

    @property
    def tokens_per_step(self) -> int:
        return self.seq_len * self.global_batch
