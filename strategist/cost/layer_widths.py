"""Widths of a decoder layer, shared by the formulas of work and of memory."""

from strategist.contract.model import ModelShape
from strategist.contract.workload import Workload


def compute_bytes(workload: Workload) -> float:
    """Bytes per value of the type in which matmuls compute."""
    return 4.0 if workload.precision == "fp32" else 2.0


def expert_width(model: ModelShape) -> float:
    """Sum of the inner widths of the routed experts that process one token, averaged over layers."""
    return model.moe.expert_ffn_size * model.moe.experts_per_token * model.moe_layers / model.layers if model.moe else 0.0


def feed_forward_width(model: ModelShape) -> tuple[float, float]:
    """Inner width that processes one token, and number of routed experts per token, both averaged over layers."""
    if model.moe is None:
        return float(model.ffn_size), 0.0
    moe = model.moe
    share = model.moe_layers / model.layers
    width = share * moe.expert_ffn_size * (moe.experts_per_token + moe.shared_experts) + (1 - share) * model.ffn_size
    return width, share * moe.experts_per_token


def shared_matmuls(model: ModelShape) -> int:
    """Number of matmuls of a layer that process all tokens: those of attention, and of the dense or shared feed-forward."""
    dense = feed_forward_width(model)[0] - expert_width(model)
    return (5 if model.mla else 4) + (model.ffn_matrices if dense else 0)


def further_readers(model: ModelShape) -> int:
    """Linears that read the output of one of a dense layer's two norms, beside the first of each."""
    return (1 if model.mla else 2) + (1 if model.moe is None and model.ffn_matrices == 3 else 0)
