"""Loss memory: bytes of the logits and of what the loss computes from them."""

from dataclasses import fields

import numpy as np

from strategist.contract.loss import Loss, chunk_tokens
from strategist.contract.model import ModelShape
from strategist.contract.stack import Stack
from strategist.contract.workload import Workload
from strategist.cost.activation_memory import autocasts, residual_bytes
from strategist.cost.candidate_arrays import Floats, View
from strategist.cost.layer_widths import compute_bytes
from strategist.frozen import frozen

LOG_SOFTMAX_BYTES = 4.0
"""Bytes per logit that an eager cross entropy saves: its log-softmax in fp32."""


@frozen
class LossMemory:
    """Bytes of the last norm, the projection and the loss, of one micro-batch on one rank.

    input_bytes: saved by the last norm and the projection.
    projected_bytes: logits in the compute type.
    peak_bytes: logits and what the loss computes from them, at the start of its backward pass.
    saved_bytes: saved by the loss until its backward pass.
    lingering_bytes: left over from one micro-batch to the next.
    cached_bytes: blocks of logits that the allocator cannot reuse.
    """

    input_bytes: Floats
    projected_bytes: Floats
    peak_bytes: Floats
    saved_bytes: Floats
    lingering_bytes: Floats
    cached_bytes: Floats


def loss_memory(model: ModelShape, workload: Workload, stack: Stack, v: View) -> LossMemory:
    """Memory of the loss. A chunked loss has the tensors of one chunk at a time, and what it saves of all chunks. A pipeline
    with one stage per rank also keeps the logits.
    """
    of_stack = _stack_loss_memory(model, workload, stack, v)
    if not v.chunked_loss.any():
        return of_stack
    of_knob = _chunked_loss_memory(model, workload, v, of_stack.input_bytes)
    names = [field.name for field in fields(LossMemory)]
    return LossMemory(**{name: np.where(v.chunked_loss, getattr(of_knob, name), getattr(of_stack, name)) for name in names})


def _chunked_loss_memory(model: ModelShape, workload: Workload, v: View, input_bytes: Floats) -> LossMemory:
    """Memory with the knob ``chunked_loss``: the gradient of the loss's input is held in place of the input, so ``input_bytes`` are
    those of a whole loss, and the gradient of the head, if it is trained, in place of the logits.

    Peak: either the softmax of a chunk, in the compute type and fp32, or the chunk's share of the head's gradient and the logits'
    gradient; in addition the sum of these shares, in fp32 if there are several chunks, and the input of all tokens.
    """
    c, head = compute_bytes(workload), model.hidden_size * model.vocab_size / v.tp
    gradient = head * c if workload.train == "full" else np.zeros_like(head)
    several_chunks = loss_chunks(model, v) > 1
    logits = np.minimum(v.tokens, chunk_tokens(model.hidden_size)) * model.vocab_size / v.tp
    softmax = logits * (4.0 + (c if c < 4.0 else 0.0))
    gradient_sum = np.where(several_chunks, gradient * 4.0 / c, 0.0)
    return LossMemory(
        input_bytes=input_bytes,
        projected_bytes=gradient,
        peak_bytes=gradient_sum + np.maximum(softmax, logits * c + gradient) + v.tokens * model.hidden_size * c,
        saved_bytes=gradient,
        lingering_bytes=np.zeros_like(gradient),
        cached_bytes=np.zeros_like(gradient),
    )


def loss_chunks(model: ModelShape, v: View) -> Floats:
    """Number of chunks of a micro-batch with the knob ``chunked_loss``."""
    return np.ceil(v.tokens / chunk_tokens(model.hidden_size))


def _stack_loss_memory(model: ModelShape, workload: Workload, stack: Stack, v: View) -> LossMemory:
    """Memory of the loss of the stack, without the knob."""
    c, loss, traits = compute_bytes(workload), stack.loss, stack.memory_traits
    logits = v.tokens * model.vocab_size / v.logit_shards
    inputs = (
        v.tokens * model.hidden_size * ((c + residual_bytes(stack, c, autocasts(stack, workload, v))) / v.activation_shards + c)
    )
    held_logit_bytes = c * (v.pp > 1) * (v.virtual_stages == 1) if traits.holds_outputs else 0.0
    bytes_per_logit = (
        np.where(v.compiled, loss.compiled_logit_bytes, loss.logit_bytes) if loss.compiled_logit_bytes else loss.logit_bytes
    )
    bytes_per_logit = bytes_per_logit + traits.parallel_loss_bytes * v.loss_parallel
    chunks, unchunked = _stack_loss_chunks(loss, v), loss.chunks == 1 and not loss.chunk_tokens
    if unchunked:
        all_chunks_bytes, saved_bytes = logits * held_logit_bytes, LOG_SOFTMAX_BYTES * logits
    elif loss.fused:
        all_chunks_bytes = c * (v.tokens * model.hidden_size / v.activation_shards + model.hidden_size * model.vocab_size / v.tp)
        saved_bytes = all_chunks_bytes
    else:
        saved_logit_bytes = np.where(v.compiled, 0.0, LOG_SOFTMAX_BYTES) if loss.kept_logit_bytes else 0.0
        all_chunks_bytes = saved_bytes = logits * (loss.kept_logit_bytes + saved_logit_bytes)
    chunk_by_chunk = loss.fused or not loss.kept_logit_bytes
    return LossMemory(
        input_bytes=inputs,
        projected_bytes=c * logits / (chunks if chunk_by_chunk else 1.0),
        peak_bytes=logits / chunks * bytes_per_logit + all_chunks_bytes,
        saved_bytes=saved_bytes,
        lingering_bytes=logits * traits.lingering_logit_bytes,
        cached_bytes=logits / chunks * loss.cached_logit_bytes,
    )


def _stack_loss_chunks(loss: Loss, v: View) -> Floats:
    """Number of chunks of the loss in one micro-batch."""
    minimum = v.tokens / loss.chunk_tokens if loss.chunk_tokens else np.ones_like(v.tokens)
    chunks: Floats = np.maximum(np.maximum(minimum, loss.chunks), 1.0)
    return chunks
