"""The optimizers, each one kernel (fused) or one per operation (foreach) over many parameters."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from strategist.contract.plan import Plan
from strategist_runtime.mesh import uses_fsdp
from strategist_runtime.optimizers.adamw import AdamWBf16
from strategist_runtime.optimizers.host_in_backward import HostInBackward
from strategist_runtime.optimizers.host_optimizer import HostOptimizer
from strategist_runtime.optimizers.in_backward import InBackward
from strategist_runtime.optimizers.muon import Muon
from strategist_runtime.optimizers.together import Named, Together
from strategist_runtime.parallel.comm_hooks import comm_hook
from strategist_runtime.parallel.streams import Lane

WEIGHT_DECAY = 0.01


def make_optimizer(named: Iterable[tuple[str, nn.Parameter]], plan: Plan, learning_rate: float) -> torch.optim.Optimizer:
    """The plan's optimizer over the parameters that are trained, where and when it updates them."""
    trained = [(name, parameter) for name, parameter in named if parameter.requires_grad]
    knobs, options = plan.candidate.knobs, plan.candidate.options
    make = partial(_optimizer, name=plan.workload.optimizer, kernel=options.optimizer_kernel, learning_rate=learning_rate)
    if knobs.optimizer_in_backward:
        return _in_backward(trained, make, plan)
    if knobs.offload == "optimizer":
        return HostOptimizer(trained, make, pinned=options.pin_memory)
    return make(trained)


def _in_backward(trained: Sequence[Named], make: Callable[[Sequence[Named]], torch.optim.Optimizer], plan: Plan) -> InBackward:
    """An optimizer for each parameter. What hosts update has a thread beside the backward pass; streamed stages bring their own."""
    offload, pinned = plan.candidate.knobs.offload, plan.candidate.options.pin_memory
    heads = [parameter for name, parameter in trained if name == "head.weight" and plan.model.tied_embeddings]
    if offload not in ("optimizer", "all"):
        return InBackward([make([pair]) for pair in trained], copies=heads)
    first = trained[0][1]
    device = torch.device(first.device_mesh.device_type) if isinstance(first, DTensor) else first.device
    host = partial(HostOptimizer, make=make, pinned=pinned, lanes=(Lane(device), Lane(device)), there=offload == "all")
    return HostInBackward([host([pair]) for pair in trained], copies=heads)


def attach(optimizer: torch.optim.Optimizer, parts: Sequence[nn.Module], plan: Plan) -> None:
    """Has an optimizer act outside of its step: update in the backward pass, send gradients away there, find float8's scales."""
    layout, knobs = plan.candidate.layout, plan.candidate.knobs
    if knobs.float8_all_gather:
        from strategist_runtime.adapters import torchao  # installed only where somebody wants it

        def find_scales(*_: object) -> None:
            for part in parts:
                torchao.find_scales(part)

        optimizer.register_step_post_hook(find_scales)
    replicas = isinstance(parts[0], DistributedDataParallel)
    once = knobs.postpone_gradient_sync and (replicas or uses_fsdp(layout, knobs.offload))
    reductions = 1 if once else plan.accumulation
    if isinstance(optimizer, InBackward):
        optimizer.attach(parts, comm_hook(plan), reductions)
    elif isinstance(optimizer, HostOptimizer) and layout.pp == 1 and not replicas:
        optimizer.attach(reductions)


def gradient_holders(optimizer: torch.optim.Optimizer) -> Iterable[nn.Parameter]:
    """The parameters whose gradients the next step takes: none that the backward pass has taken."""
    if isinstance(optimizer, InBackward):
        return ()
    if isinstance(optimizer, HostOptimizer):
        return optimizer.receive()
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


def _optimizer(named: Sequence[Named], *, name: str, kernel: str, learning_rate: float) -> torch.optim.Optimizer:
    """``muon`` is for the matrices of layers, AdamW for the rest (arXiv 2502.16982); ``kernel`` is foreach, fused or for_loop."""
    if name != "muon":
        return _elementwise([parameter for _, parameter in named], name, kernel, learning_rate)
    matrices = [parameter for key, parameter in named if key.startswith("layers.") and parameter.dim() == 2]
    others = [parameter for key, parameter in named if not (key.startswith("layers.") and parameter.dim() == 2)]
    parts: list[torch.optim.Optimizer] = []
    if matrices:
        parts.append(Muon(matrices, lr=learning_rate, weight_decay=WEIGHT_DECAY, adjust_lr_fn="match_rms_adamw"))
    if others:
        parts.append(_elementwise(others, "adamw", kernel, learning_rate))
    return parts[0] if len(parts) == 1 else Together(parts)


def _elementwise(parameters: Iterable[nn.Parameter], name: str, kernel: str, learning_rate: float) -> torch.optim.Optimizer:
    """``adamw`` (arXiv 1711.05101), with states in bf16 or 8 bits too, or ``sgd`` without momentum, so without state.

    Parameters on different meshes cannot share one kernel call, hence a group for each mesh.
    """
    by_mesh: dict[object, list[nn.Parameter]] = defaultdict(list)
    for parameter in parameters:
        by_mesh[parameter.device_mesh if isinstance(parameter, DTensor) else None].append(parameter)
    groups = [{"params": group} for group in by_mesh.values()]
    if name == "sgd":  # torch has no fused one for DTensors
        return torch.optim.SGD(groups, lr=learning_rate, foreach=kernel != "for_loop")
    if name == "adamw8bit":
        from strategist_runtime.adapters import torchao

        return torchao.adamw8bit(groups, learning_rate, WEIGHT_DECAY)
    kind = AdamWBf16 if name == "adamw_bf16" else torch.optim.AdamW
    return kind(groups, lr=learning_rate, weight_decay=WEIGHT_DECAY, fused=kernel == "fused", foreach=kernel == "foreach")
