import torch


def run_micro_batches(model, tokens, targets):
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
        model.set_requires_gradient_sync(sync)
        model.set_reshard_after_backward(sync or RESHARD_AFTER_FORWARD is not False)
        # end: fsdp and accumulates
        # if: ddp and accumulates
        model.require_backward_grad_sync = index == ACCUMULATION - 1 or not NO_SYNC
        # end: ddp and accumulates
        loss = loss_of(model(micro_batch), target)
        loss.backward()
        # if: loss_parallel
        total += loss.detach().to_local()
        # end: loss_parallel
        # if: not loss_parallel
        total += loss.detach()
        # end: not loss_parallel
    return total
