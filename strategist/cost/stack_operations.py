"""Operations of a layer that only some software stacks run, for some models."""

from strategist.contract.model import ModelShape
from strategist.contract.stack import Stack


def biases_by_expert(model: ModelShape, stack: Stack) -> bool:
    """Whether each expert's bias is added by Python, expert by expert, as Megatron-Core does
    (megatron/core/transformer/moe/experts.py: ``_apply_bias``). A graph of a whole step cannot contain that: there Transformer
    Engine's fused operations add it.
    """
    return model.moe is not None and model.ffn_bias and stack.experts == "streams" and stack.graphs != "step"


def clamps_separately(model: ModelShape, stack: Stack) -> bool:
    """Whether a gated activation's input is clamped by kernels of its own, which save it once more
    (megatron/core/fusions/fused_bias_geglu.py: ``weighted_bias_quick_geglu_impl``).
    """
    return bool(model.activation_limit) and stack.experts == "streams" and stack.graphs != "step"


def gathers_heads(model: ModelShape, stack: Stack) -> bool:
    """Whether each tensor-parallel rank gathers the queries and keys of all heads before their norms."""
    return stack.gathers_normed_heads and model.qk_norm
