from collections import Counter

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

# if: selective
MATMULS = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default}
ATTENTION = {
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
}
COLLECTIVES = {torch.ops._c10d_functional.all_reduce.default, torch.ops._c10d_functional.reduce_scatter_tensor.default}
# if: moe
MATMULS |= {torch.ops.aten._grouped_mm.default}
ATTENTION |= {torch.ops.aten.topk.default}  # so that the choice of experts stays
# end: moe
# if: ep
COLLECTIVES |= {torch.ops._c10d_functional.all_to_all_single.default}
# end: ep
SAVED = SAVED_OPERATIONS.split("+")


def selective():
    """Contexts in which the outputs of SAVED_OPERATIONS are kept, and all else is computed again (arXiv 2205.05198)."""
    matmuls = Counter()

    def policy(context, operation, *args, **kwargs):
        if operation in MATMULS:
            matmuls[context.is_recompute] += 1
            kept = "matmul" in SAVED or ("every_second_matmul" in SAVED and matmuls[context.is_recompute] % 2 == 1)
        else:
            kept = operation in ATTENTION or ("collectives" in SAVED and operation in COLLECTIVES)
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


# end: selective
def apply_activation_checkpointing(part):
    """Activation checkpointing: the forward pass of a layer runs again in its backward pass (arXiv 1604.06174)."""
    # if: every_second_layer
    for layer in [layer for index, layer in part.layers.items() if int(index) % 2 == 0]:
    # end: every_second_layer
    # if: not every_second_layer
    for layer in part.layers.values():
    # end: not every_second_layer
        layer.forward = recomputed(layer.forward)


def recomputed(forward):
    # if: selective
    how = {"use_reentrant": False, "preserve_rng_state": False, "context_fn": selective}
    return lambda x: checkpoint(forward, x, **how)
    # end: selective
    # if: not selective
    return lambda x: checkpoint(forward, x, use_reentrant=False, preserve_rng_state=False)
    # end: not selective
