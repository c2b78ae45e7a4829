import math

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def make_optimizer(parts):
    """Over the parameters that are trained; those on different meshes cannot share a kernel, so they are groups."""
    by_mesh = {}
    for _, parameter in named(parts):
        if parameter.requires_grad:
            by_mesh.setdefault(getattr(parameter, "device_mesh", None), []).append(parameter)
    groups = [{"params": parameters} for parameters in by_mesh.values()]
    # if: sgd
    return torch.optim.SGD(groups, lr=LEARNING_RATE, foreach=OPTIMIZER_KERNEL != "for_loop")
    # end: sgd
    # if: not sgd
    kernel = {"fused": OPTIMIZER_KERNEL == "fused", "foreach": OPTIMIZER_KERNEL == "foreach"}
    return torch.optim.AdamW(groups, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, **kernel)
    # end: not sgd


def update(parts, optimizer, loss):
    """Clips the whole gradient to CLIP_NORM and takes a step; the mean loss of the step, and the norm before clipping."""
    # if: apart and not lora
    for mixture in [mixture for part in parts for mixture in mixtures(part)]:
        for parameter in mixture.experts.parameters():  # FSDP2 took the mean over TP / EP times as many ranks
            parameter.grad.mul_(TP / EP)
    # end: apart and not lora
    gradients = [parameter.grad for _, parameter in named(parts) if parameter.grad is not None]
    squares = [torch.linalg.vector_norm(local(gradient), dtype=torch.float32) ** 2 * pieces(gradient) for gradient in gradients]
    # A gradient in n pieces, each on world size / n ranks, is counted n times a piece; a stage has gradients of its own.
    figures = PP * torch.stack((loss, torch.stack(squares).sum().to(loss.device))).double() / dist.get_world_size()
    dist.all_reduce(figures)
    loss, square = figures.tolist()
    # if: fp16
    scale, overflow = LossScale.value(), not math.isfinite(square)
    loss, norm = loss / scale, math.sqrt(square) / scale
    LossScale.update(overflow)
    if not overflow:
        torch._foreach_mul_([local(gradient) for gradient in gradients], min(1.0, CLIP_NORM / max(norm, 1e-30)) / scale)
        optimizer.step()
    # end: fp16
    # if: not fp16
    norm = math.sqrt(square)
    if not math.isfinite(loss + norm):
        raise SystemExit(f"training diverged: loss {loss}, gradient norm {norm}")
    if norm > CLIP_NORM:
        torch._foreach_mul_([local(gradient) for gradient in gradients], CLIP_NORM / norm)
    optimizer.step()
    # end: not fp16
    optimizer.zero_grad()
    return loss, norm


def pieces(gradient):
    """The number of different pieces of a gradient over all ranks."""
    # if: fsdp
    if isinstance(gradient, DTensor):
        axes = [axis for axis, placement in enumerate(gradient.placements) if not placement.is_replicate()]
        return math.prod(gradient.device_mesh.size(axis) for axis in axes)
    # end: fsdp
    return 1
