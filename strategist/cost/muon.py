"""Muon (arXiv 2502.16982): the matrices that it updates, and the FLOPs of their updates."""

from collections.abc import Iterator

from strategist.contract.model import ModelShape
from strategist.contract.stack import Stack
from strategist.contract.workload import Workload

NEWTON_SCHULZ_STEPS = 5
"""Newton-Schulz iterations per matrix (torch.optim.Muon; arXiv 2502.16982, section 2.1)."""


def newton_schulz_flops(rows: int, columns: int) -> float:
    """FLOPs of one matrix: each iteration computes X X^T, its square, and their product with X, over the shorter side."""
    short, long = sorted((rows, columns))
    return NEWTON_SCHULZ_STEPS * (4.0 * short * short * long + 2.0 * short**3)


def muon_matrices(model: ModelShape, workload: Workload) -> tuple[tuple[float, int, int], ...]:
    """``layer_matrices`` if the workload trains with Muon, else none."""
    return tuple(layer_matrices(model)) if workload.optimizer == "muon" and workload.train == "full" else ()


def muon_share(model: ModelShape, stack: Stack) -> float:
    """Share of the parameters that Muon updates; AdamW updates the rest. torch's Muon updates no routed experts."""
    matrices = model.layers * sum(count * rows * columns for count, rows, columns in layer_matrices(model))
    if model.moe and stack.family != "torch":
        matrices += model.moe_layers * model.moe.experts * model.expert_parameters
    return matrices / model.parameters


def layer_matrices(model: ModelShape) -> Iterator[tuple[float, int, int]]:
    """Matrices of an average layer that Muon updates, as (number, rows, columns): those of attention, routers, and dense and
    shared feed-forwards. Routed experts are excluded, because their matrices lie in one tensor.
    """
    h = model.hidden_size
    if model.mla is None:
        yield 2.0, h, model.heads * model.head_size
        yield 2.0, h, model.kv_heads * model.head_size
    else:
        m = model.mla
        if m.query_rank:
            yield 1.0, h, m.query_rank
        yield 1.0, m.query_rank or h, model.query_width
        yield 1.0, h, m.key_value_rank + m.rope_head_size
        yield 1.0, m.key_value_rank, model.heads * (m.nope_head_size + m.value_head_size)
        yield 1.0, h, model.attended_width
    if model.ffn_size and model.dense_layers:
        yield model.ffn_matrices * model.dense_layers / model.layers, h, model.ffn_size
    if model.moe:
        yield model.moe_layers / model.layers, h, model.moe.experts
    if model.moe and model.moe.shared_experts:
        width = model.moe.expert_ffn_size * model.moe.shared_experts
        yield model.ffn_matrices * model.moe_layers / model.layers, h, width
