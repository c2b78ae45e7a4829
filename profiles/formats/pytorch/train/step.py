import math

import torch
import torch.distributed as dist
import torch.nn.functional as F


# if: pp
def train_step(schedule, optimizer, tokens, targets):
    """Passes of all micro-batches, and an update by their gradient, clipped to CLIP_NORM; the mean loss, and the norm before."""
    losses, inputs = [], (tokens,) if dist.get_rank() < dist.get_world_size() // PP else ()  # of the first stage
    schedule.step(*inputs, target=targets, losses=losses, return_outputs=False)
    # if: loss_parallel
    total = sum((loss.detach().to_local() for loss in losses), torch.zeros((), device=tokens.device))
    # end: loss_parallel
    # if: not loss_parallel
    total = sum((loss.detach() for loss in losses), torch.zeros((), device=tokens.device))
    # end: not loss_parallel
# end: pp
# if: not pp
def train_step(model, optimizer, tokens, targets):
    # if: one_micro_batch
    """A pass, and an update by its gradient, clipped to CLIP_NORM; the mean loss, and the norm before."""
    # if: chunked_loss
    loss = model(tokens, targets)
    # end: chunked_loss
    # if: not chunked_loss
    loss = F.cross_entropy(model(tokens).flatten(0, 1).float(), targets.flatten(0, 1))
    # end: not chunked_loss
    # if: fp16 and not chunked_loss
    (loss * LossScale.value()).backward()
    # end: fp16 and not chunked_loss
    # if: fp16 and chunked_loss
    loss.backward()  # its gradients are scaled in the forward pass
    # end: fp16 and chunked_loss
    # if: not fp16
    loss.backward()
    # end: not fp16
    # if: loss_parallel
    total = loss.detach().to_local()
    # end: loss_parallel
    # if: not loss_parallel
    total = loss.detach()
    # end: not loss_parallel
    # end: one_micro_batch
    # if: not one_micro_batch
    """Passes of all micro-batches, and an update by their gradient, clipped to CLIP_NORM; the mean loss, and the norm before."""
    total = torch.zeros((), device=tokens.device)
    # if: accumulates
    for index, (micro_batch, target) in enumerate(zip(tokens.split(MICRO_BATCH), targets.split(MICRO_BATCH), strict=True)):
    # end: accumulates
    # if: not accumulates
    for micro_batch, target in zip(tokens.split(MICRO_BATCH), targets.split(MICRO_BATCH), strict=True):
    # end: not accumulates
        # if: fsdp and accumulates
        last = index == ACCUMULATION - 1
        model.set_requires_gradient_sync(last)
        model.set_reshard_after_backward(last or RESHARD_AFTER_FORWARD is not False)
        # end: fsdp and accumulates
        # if: ddp and accumulates
        model.require_backward_grad_sync = index == ACCUMULATION - 1
        # end: ddp and accumulates
        # if: chunked_loss
        loss = model(micro_batch, target)
        # end: chunked_loss
        # if: not chunked_loss
        loss = F.cross_entropy(model(micro_batch).flatten(0, 1).float(), target.flatten(0, 1)) / ACCUMULATION
        # end: not chunked_loss
        # if: fp16 and not chunked_loss
        (loss * LossScale.value()).backward()
        # end: fp16 and not chunked_loss
        # if: fp16 and chunked_loss
        loss.backward()  # its gradients are scaled in the forward pass
        # end: fp16 and chunked_loss
        # if: not fp16
        loss.backward()
        # end: not fp16
        # if: loss_parallel
        total += loss.detach().to_local()
        # end: loss_parallel
        # if: not loss_parallel
        total += loss.detach()
        # end: not loss_parallel
    # end: not one_micro_batch
# end: not pp
    # if: clip_grad_norm and fsdp
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM).full_tensor()
    # end: clip_grad_norm and fsdp
    # if: clip_grad_norm and not fsdp
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
    # end: clip_grad_norm and not fsdp
    # if: not clip_grad_norm and several_meshes
    gradients = [[parameter.grad for parameter in group["params"]] for group in optimizer.param_groups]
    # end: not clip_grad_norm and several_meshes
    # if: rescaled
    for part in gradients:
        if "experts" in part[0].device_mesh.mesh_dim_names:
            torch._foreach_mul_(part, TP / EP)  # FSDP2 took the mean over TP / EP times as many ranks
    # end: rescaled
    # if: not clip_grad_norm and several_meshes
    norm = torch.linalg.vector_norm(torch.stack([torch.nn.utils.get_total_norm(part).full_tensor() for part in gradients]))
    # end: not clip_grad_norm and several_meshes
    # if: not clip_grad_norm and not several_meshes
    gradients = [parameter.grad for parameter in optimizer.param_groups[0]["params"]]
    # end: not clip_grad_norm and not several_meshes
    # if: not clip_grad_norm and fsdp and not several_meshes
    norm = torch.nn.utils.get_total_norm(gradients).full_tensor()
    # end: not clip_grad_norm and fsdp and not several_meshes
    # if: not clip_grad_norm and not fsdp
    norm = torch.nn.utils.get_total_norm(gradients)
    # end: not clip_grad_norm and not fsdp
    # if: pp
    totals = torch.stack((total, norm.to(total.device) ** 2)) * PP / dist.get_world_size()
    dist.all_reduce(totals)  # sums over stages, means over the ranks of each
    loss, norm = totals[0].item(), totals[1].sqrt().item()
    # end: pp
    # if: not pp
    dist.all_reduce(total)
    loss, norm = total.item() / dist.get_world_size(), norm.item()
    # end: not pp
    # if: fp16
    scale, overflow = LossScale.value(), not math.isfinite(norm)
    LossScale.update(overflow)
    # if: pp
    loss, norm = loss / scale, norm / scale
    # end: pp
    # if: not pp
    norm /= scale
    # end: not pp
    if not overflow:
        # if: several_meshes
        for part in gradients:
            torch._foreach_mul_(part, min(1.0, CLIP_NORM / (norm + 1e-6)) / scale)
        # end: several_meshes
        # if: not several_meshes
        torch._foreach_mul_(gradients, min(1.0, CLIP_NORM / (norm + 1e-6)) / scale)
        # end: not several_meshes
        optimizer.step()
    # end: fp16
    # if: not fp16
    if not math.isfinite(loss + norm):
        raise SystemExit(f"training diverged: loss {loss}, gradient norm {norm}")
    # if: not clip_grad_norm and several_meshes
    for part in gradients:
        torch._foreach_mul_(part, min(1.0, CLIP_NORM / (norm + 1e-6)))
    # end: not clip_grad_norm and several_meshes
    # if: not clip_grad_norm and not several_meshes
    torch._foreach_mul_(gradients, min(1.0, CLIP_NORM / (norm + 1e-6)))
    # end: not clip_grad_norm and not several_meshes
    optimizer.step()
    # end: not fp16
    optimizer.zero_grad()
    return loss, norm
