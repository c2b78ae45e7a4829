from functools import partial

import torch


def make_stages(meshes, device, weights):
    """The whole model, and the function that runs a step on it."""
    part = build(0, LAYERS, meshes, device, weights)
    return [part], partial(run_micro_batches, part)


def run_micro_batches(part, tokens, targets):
    """Forward and backward passes of all micro-batches; their mean loss."""
    total = torch.zeros((), device=tokens.device)
    pairs = zip(tokens.split(MICRO_BATCH), targets.split(MICRO_BATCH), strict=True)
    # if: accumulates
    for index, (micro_batch, target) in enumerate(pairs):
    # end: accumulates
    # if: not accumulates
    for micro_batch, target in pairs:
    # end: not accumulates
        # if: fsdp and accumulates
        sync = index == ACCUMULATION - 1 or not NO_SYNC
        part.set_requires_gradient_sync(sync)
        part.set_reshard_after_backward(sync or RESHARD_AFTER_FORWARD is not False)
        # end: fsdp and accumulates
        # if: ddp and accumulates
        part.require_backward_grad_sync = index == ACCUMULATION - 1 or not NO_SYNC
        # end: ddp and accumulates
        loss = loss_of(part(micro_batch), target)
        loss.backward()
        total += local(loss.detach())
    return total
