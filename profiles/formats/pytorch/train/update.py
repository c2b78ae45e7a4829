import math

import torch
import torch.distributed as dist


def make_optimizer(parameters):
    # if: mixed
    """Over the parameters that are trained; those on different meshes cannot share a kernel, so they are groups."""
    # end: mixed
    # if: lora
    parameters = {name: parameter for name, parameter in parameters.items() if parameter.requires_grad}
    # end: lora
    # if: mixed
    by_mesh = {}
    for parameter in parameters.values():
        by_mesh.setdefault(parameter.device_mesh, []).append(parameter)
    groups = [{"params": members} for members in by_mesh.values()]
    # end: mixed
    # if: sgd and mixed
    return torch.optim.SGD(groups, lr=LEARNING_RATE, foreach=OPTIMIZER_KERNEL != "for_loop")
    # end: sgd and mixed
    # if: sgd and not mixed
    return torch.optim.SGD(parameters.values(), lr=LEARNING_RATE, foreach=OPTIMIZER_KERNEL != "for_loop")
    # end: sgd and not mixed
    # if: not sgd and fused and mixed
    optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True)
    # end: not sgd and fused and mixed
    # if: not sgd and fused and not mixed
    optimizer = torch.optim.AdamW(parameters.values(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True)
    # end: not sgd and fused and not mixed
    # if: not sgd and not fused
    foreach = OPTIMIZER_KERNEL == "foreach"
    # end: not sgd and not fused
    # if: not sgd and not fused and mixed
    optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, foreach=foreach)
    # end: not sgd and not fused and mixed
    # if: not sgd and not fused and not mixed
    optimizer = torch.optim.AdamW(parameters.values(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, foreach=foreach)
    # end: not sgd and not fused and not mixed
    # if: not sgd
    for parameter in parameters.values():  # states from the beginning on, so that a checkpoint can be read into them
        moments = {"exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}
        # if: fused
        optimizer.state[parameter] = {"step": torch.zeros((), device=parameter.device), **moments}
        # end: fused
        # if: not fused
        optimizer.state[parameter] = {"step": torch.zeros(()), **moments}
        # end: not fused
    return optimizer
    # end: not sgd


def update(parameters, optimizer, loss):
    """Clips the whole gradient to CLIP_NORM and takes a step; the mean loss of the step, and the norm before clipping."""
    # if: apart and not lora
    for name, parameter in parameters.items():
        if ".experts." in name:
            parameter.grad.mul_(TP / EP)  # FSDP2 took the mean over TP / EP times as many ranks
    # end: apart and not lora
    # if: mixed
    gradients = [parameter.grad for parameter in parameters.values() if parameter.grad is not None]
    squares = [torch.linalg.vector_norm(gradient.to_local()) ** 2 * pieces(gradient) for gradient in gradients]
    gradients = [gradient.to_local() for gradient in gradients]
    # A gradient in n pieces, each on world size / n ranks, is counted n times a piece; a stage has gradients of its own.
    figures = PP * torch.stack((loss, torch.stack(squares).sum().to(loss.device))) / dist.get_world_size()
    # end: mixed
    # if: fsdp and not mixed
    gradients = [parameter.grad.to_local() for parameter in parameters.values() if parameter.grad is not None]
    square = torch.nn.utils.get_total_norm(gradients).to(loss.device) ** 2
    # end: fsdp and not mixed
    # if: fsdp and not mixed and hsdp
    square = square / DP_REPLICATE  # replicas have the same gradients
    # end: fsdp and not mixed and hsdp
    # if: fsdp and not mixed and pp
    figures = torch.stack((loss * PP / dist.get_world_size(), square))
    # end: fsdp and not mixed and pp
    # if: fsdp and not mixed and not pp
    figures = torch.stack((loss / dist.get_world_size(), square))
    # end: fsdp and not mixed and not pp
    # if: pp and not fsdp
    gradients = [parameter.grad for parameter in parameters.values() if parameter.grad is not None]
    figures = torch.stack((loss, torch.nn.utils.get_total_norm(gradients) ** 2))
    # end: pp and not fsdp
    # if: not pp and not fsdp
    gradients = [parameter.grad for parameter in parameters.values() if parameter.grad is not None]
    figures = torch.stack((loss, torch.nn.utils.get_total_norm(gradients) ** 2)) / dist.get_world_size()
    # end: not pp and not fsdp
    dist.all_reduce(figures)
    # if: fp16
    loss, square = figures.tolist()
    scale, overflow = LossScale.value(), not math.isfinite(square)
    loss, norm = loss / scale, math.sqrt(square) / scale
    LossScale.update(overflow)
    if not overflow:
        torch._foreach_mul_(gradients, min(1.0, CLIP_NORM / max(norm, 1e-30)) / scale)
        optimizer.step()
    # end: fp16
    # if: not fp16
    loss, norm = figures[0].item(), figures[1].sqrt().item()
    if not figures.isfinite().all():
        raise SystemExit(f"training diverged: loss {loss}, gradient norm {norm}")
    # end: not fp16
    # if: not fp16 and mixed
    if norm > CLIP_NORM:
        torch._foreach_mul_(gradients, CLIP_NORM / norm)
    optimizer.step()
    # end: not fp16 and mixed
    # if: not fp16 and not mixed
    torch.nn.utils.clip_grads_with_norm_(parameters.values(), CLIP_NORM, torch.tensor(norm))
    optimizer.step()
    # end: not fp16 and not mixed
    optimizer.zero_grad()
    return loss, norm


# if: mixed
def pieces(gradient):
    """The number of different pieces of a gradient over all ranks."""
    axes = [axis for axis, placement in enumerate(gradient.placements) if not placement.is_replicate()]
    return math.prod(gradient.device_mesh.size(axis) for axis in axes)
# end: mixed
