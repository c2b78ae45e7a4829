"""Widths of a decoder layer that formulas of work and of memory share."""

from strategist.contract.model import ModelShape
from strategist.contract.workload import Workload


def compute_bytes(workload: Workload) -> float:
    """Bytes of a value in the type that matmuls compute in."""
    return 4.0 if workload.precision == "fp32" else 2.0


def expert_width(model: ModelShape) -> float:
    """Inner width of the routed experts that one token visits in an average layer."""
    return model.moe.expert_ffn_size * model.moe.experts_per_token * model.moe_layers / model.layers if model.moe else 0.0


def feed_forward_width(model: ModelShape) -> tuple[float, float]:
    """Inner width that one token uses in an average layer, and the experts that it visits there."""
    if model.moe is None:
        return float(model.ffn_size), 0.0
    moe = model.moe
    share = model.moe_layers / model.layers
    width = share * moe.expert_ffn_size * (moe.experts_per_token + moe.shared_experts) + (1 - share) * model.ffn_size
    return width, share * moe.experts_per_token


def shared_matmuls(model: ModelShape) -> int:
    """Matmuls of a layer that all tokens use: of attention, and of a feed-forward that is not of routed experts alone."""
    dense = feed_forward_width(model)[0] - expert_width(model)
    return (5 if model.mla else 4) + (model.ffn_matrices if dense else 0)


def further_readers(model: ModelShape) -> int:
    """Linears that read the output of one of a dense layer's two norms, beside the first of each."""
    return (1 if model.mla else 2) + (1 if model.moe is None and model.ffn_matrices == 3 else 0)
