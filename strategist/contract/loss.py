"""Loss: memory of a framework's cross entropy of a micro-batch."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Facts of a loss that decide what it takes.

    logit_bytes: bytes that live for each logit as the loss's backward pass begins. 12 where fp32 is made of the logits:
        log-softmax, its gradient and that of the logits (counted with torch 2.13: aten._log_softmax_backward_data).
    compiled_logit_bytes: the same where a compiler makes one kernel of cast and loss; 0: as without.
    moved_bytes: bytes that pass through memory for each logit, forward and backward. 48 eager: cast to fp32 (6), log-softmax (three
        reads and a write: 16), zeros for its gradient (4), back through it (three reads and a write: 16), cast back (6)
        (aten/src/ATen/native/cuda/SoftMax.cu: cunn_SoftMaxForward, cunn_SoftMaxBackward).
    chunks: pieces in which the loss takes a micro-batch; chunk_tokens: the most tokens of a piece, 0 for any number.
    kept_logit_bytes: with several pieces, bytes that stay for each logit of all of them.
    fused: the head's matmul is part of the loss, which makes the gradients of the head and of its input as it goes forward
        (arXiv 2410.10989, section 3.2).
    """

    logit_bytes: float = 12.0
    compiled_logit_bytes: float = 0.0
    moved_bytes: float = 48.0
    chunks: float = 1.0
    chunk_tokens: float = 0.0
    kept_logit_bytes: float = 0.0
    fused: bool = False
