import math

import torch
import torch.distributed as dist


def make_optimizer(parts):
    # if: mixed
    """Over the parameters that are trained; those on different meshes cannot share a kernel, so they are groups."""
    # end: mixed
    # if: lora
    parameters = [parameter for _, parameter in named(parts) if parameter.requires_grad]
    # end: lora
    # if: not lora
    parameters = [parameter for _, parameter in named(parts)]
    # end: not lora
    # if: mixed
    by_mesh = {}
    for parameter in parameters:
        by_mesh.setdefault(parameter.device_mesh, []).append(parameter)
    parameters = [{"params": members} for members in by_mesh.values()]
    # end: mixed
    # if: sgd
    return torch.optim.SGD(parameters, lr=LEARNING_RATE, foreach=OPTIMIZER_KERNEL != "for_loop")
    # end: sgd
    # if: not sgd and fused
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, fused=True)
    # end: not sgd and fused
    # if: not sgd and not fused
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, foreach=OPTIMIZER_KERNEL == "foreach")
    # end: not sgd and not fused
    # if: not sgd
    # States from the beginning on, so that a checkpoint can be read into them.
    for parameter in [parameter for group in optimizer.param_groups for parameter in group["params"]]:
        moments = {"exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}
        # if: fused
        optimizer.state[parameter] = {"step": torch.zeros((), device=parameter.device), **moments}
        # end: fused
        # if: not fused
        optimizer.state[parameter] = {"step": torch.zeros(()), **moments}
        # end: not fused
    return optimizer
    # end: not sgd


def update(parts, optimizer, loss):
    """Clips the whole gradient to CLIP_NORM and takes a step; the mean loss of the step, and the norm before clipping."""
    # if: apart and not lora
    for mixture in [mixture for part in parts for mixture in mixtures(part)]:
        for parameter in mixture.experts.parameters():  # FSDP2 took the mean over TP / EP times as many ranks
            parameter.grad.mul_(TP / EP)
    # end: apart and not lora
    # if: mixed
    gradients = [parameter.grad for _, parameter in named(parts) if parameter.grad is not None]
    squares = [torch.linalg.vector_norm(gradient.to_local()) ** 2 * pieces(gradient) for gradient in gradients]
    gradients = [gradient.to_local() for gradient in gradients]
    # A gradient in n pieces, each on world size / n ranks, is counted n times a piece; a stage has gradients of its own.
    figures = PP * torch.stack((loss, torch.stack(squares).sum().to(loss.device))) / dist.get_world_size()
    # end: mixed
    # if: fsdp and not mixed
    gradients = [parameter.grad.to_local() for _, parameter in named(parts) if parameter.grad is not None]
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
    gradients = [parameter.grad for _, parameter in named(parts) if parameter.grad is not None]
    figures = torch.stack((loss, torch.nn.utils.get_total_norm(gradients) ** 2))
    # end: pp and not fsdp
    # if: not pp and not fsdp
    gradients = [parameter.grad for _, parameter in named(parts) if parameter.grad is not None]
    figures = torch.stack((loss, torch.nn.utils.get_total_norm(gradients) ** 2)) / dist.get_world_size()
    # end: not pp and not fsdp
    dist.all_reduce(figures)
    loss, square = figures.tolist()
    # if: fp16
    scale, overflow = LossScale.value(), not math.isfinite(square)
    loss, norm = loss / scale, math.sqrt(square) / scale
    LossScale.update(overflow)
    if not overflow:
        torch._foreach_mul_(gradients, min(1.0, CLIP_NORM / max(norm, 1e-30)) / scale)
        optimizer.step()
    # end: fp16
    # if: not fp16
    norm = math.sqrt(square)
    if not math.isfinite(loss + norm):
        raise SystemExit(f"training diverged: loss {loss}, gradient norm {norm}")
    if norm > CLIP_NORM:
        torch._foreach_mul_(gradients, CLIP_NORM / norm)
    optimizer.step()
    # end: not fp16
    optimizer.zero_grad()
    return loss, norm


# if: mixed
def pieces(gradient):
    """The number of different pieces of a gradient over all ranks."""
    axes = [axis for axis, placement in enumerate(gradient.placements) if not placement.is_replicate()]
    return math.prod(gradient.device_mesh.size(axis) for axis in axes)
# end: mixed
