from functools import partial

import torch
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

aten = torch.ops.aten
# if: every_second_matmul
MATMULS = [aten.mm.default, aten.addmm.default, aten.bmm.default]
# end: every_second_matmul
# if: every_second_matmul and moe
MATMULS += [aten._grouped_mm.default]
# end: every_second_matmul and moe
# if: every_second_matmul
MUST_SAVE = [  # operations whose outputs are saved; all others are recomputed (arXiv 2205.05198)
# end: every_second_matmul
# if: not every_second_matmul
selective = partial(create_selective_checkpoint_contexts, [  # saves the outputs of these operations (arXiv 2205.05198)
# end: not every_second_matmul
    # if: saves_matmuls and not every_second_matmul
    aten.mm.default, aten.addmm.default, aten.bmm.default,
    # end: saves_matmuls and not every_second_matmul
    # if: saves_matmuls and not every_second_matmul and moe
    aten._grouped_mm.default,
    # end: saves_matmuls and not every_second_matmul and moe
    # if: cuda
    aten._scaled_dot_product_cudnn_attention.default, aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_flash_attention.default,
    # end: cuda
    # if: not cuda
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    # end: not cuda
    # if: saves_collectives
    torch.ops._c10d_functional.all_reduce.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
    # end: saves_collectives
    # if: saves_collectives and ep
    torch.ops._c10d_functional.all_to_all_single.default,
    # end: saves_collectives and ep
    # if: moe
    aten.topk.default,  # the choice of experts
    # end: moe
# if: every_second_matmul
]


def selective():
    """Contexts that save the outputs of MUST_SAVE and of every second matmul."""
    matmuls = {False: 0, True: 0}  # of the forward pass and of its recomputation

    def policy(context, operation, *args, **kwargs):
        matmuls[context.is_recompute] += operation in MATMULS
        must_save = operation in MUST_SAVE or (operation in MATMULS and matmuls[context.is_recompute] % 2 == 1)
        return CheckpointPolicy.MUST_SAVE if must_save else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)
# end: every_second_matmul
# if: not every_second_matmul
])
# end: not every_second_matmul
