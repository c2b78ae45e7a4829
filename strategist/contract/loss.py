"""Loss: memory of a framework's cross entropy of a micro-batch."""

from strategist.frozen import frozen

IGNORED = -100
"""Target of a token that does not count in the loss (``ignore_index`` of torch's cross entropy)."""


@frozen
class Loss:
    """Properties of a loss that determine its memory and time.

    logit_bytes: bytes per logit that are live when the backward pass of the loss begins. 12 if logits are cast to fp32:
        log-softmax, its gradient and that of the logits (counted with torch 2.13: aten._log_softmax_backward_data).
    compiled_logit_bytes: the same if a compiler fuses cast and loss; 0: as without a compiler.
    moved_bytes: bytes moved per logit, forward and backward. 48 eager: cast to fp32 (6), log-softmax (three reads and a write: 16),
        zeros for its gradient (4), back through it (three reads and a write: 16), cast back (6)
        (aten/src/ATen/native/cuda/SoftMax.cu: cunn_SoftMaxForward, cunn_SoftMaxBackward).
    cached_logit_bytes: bytes per logit that the allocator caches beside them and cannot reuse: logits without the last token take
        blocks of a size that no other logits have.
    chunks: number of chunks of a micro-batch; chunk_tokens: maximum tokens of a chunk, 0 for no limit.
    kept_logit_bytes: with several chunks, bytes per logit that are kept for all of them.
    fused: the head's matmul is part of the loss, which computes the gradients of the head and of its input in its forward pass
        (arXiv 2410.10989).
    """

    logit_bytes: float = 12.0
    compiled_logit_bytes: float = 0.0
    moved_bytes: float = 48.0
    cached_logit_bytes: float = 0.0
    chunks: float = 1.0
    chunk_tokens: float = 0.0
    kept_logit_bytes: float = 0.0
    fused: bool = False


def chunk_tokens(hidden_size: int) -> int:
    """Tokens of a chunk of the native runtime's chunked loss: half as many as the hidden size.

    A larger chunk would determine the peak, a smaller one would only add up the gradient of the head more often: beside the sum in
    fp32, a chunk of N tokens takes 6 N V bytes in its softmax (logits in bf16 and fp32), and 2 N V + 2 H V bytes when its share of
    the gradient [V, H] is computed. Both are equal at N = H / 2.
    """
    return max(hidden_size // 2, 1)
