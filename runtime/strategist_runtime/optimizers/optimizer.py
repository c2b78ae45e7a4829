"""The plan's optimizer, with one kernel (fused) or one per operation (foreach) over many parameters."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan
from strategist_runtime.compat.dtensor import local
from strategist_runtime.compat.optimizers import SGD, AdamW
from strategist_runtime.mesh import uses_fsdp
from strategist_runtime.optimizers import gradient_norm
from strategist_runtime.optimizers.adamw import AdamWBf16
from strategist_runtime.optimizers.combined import CombinedOptimizer, Named
from strategist_runtime.optimizers.host_in_backward import HostInBackward
from strategist_runtime.optimizers.host_optimizer import HostOptimizer
from strategist_runtime.optimizers.in_backward import InBackward
from strategist_runtime.optimizers.muon import Muon
from strategist_runtime.parallel.comm_hooks import comm_hook
from strategist_runtime.parallel.copy_streams import CopyStream

WEIGHT_DECAY = 0.01
"""Default of torch.optim.AdamW; SGD has none."""


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The settings of an optimizer: ``name`` and ``kernel`` as in a plan; ``undecayed`` are the names of parameters without
    weight decay.
    """

    name: str
    kernel: str
    learning_rate: float
    weight_decay: float
    betas: tuple[float, float] | None = None
    undecayed: frozenset[str] = frozenset()

    def groups(self, named_parameters: Iterable[Named]) -> list[dict[str, Any]]:
        """Parameter groups by weight decay, and by mesh, since parameters on different meshes cannot share a kernel call."""
        found: dict[tuple[object, bool], list[nn.Parameter]] = defaultdict(list)
        for name, parameter in named_parameters:
            mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
            found[mesh, name in self.undecayed].append(parameter)
        return [
            {"params": parameters, "weight_decay": 0.0 if without_decay else self.weight_decay}
            for (_, without_decay), parameters in found.items()
        ]


def make_optimizer(
    named_parameters: Iterable[Named], plan: Plan, settings: TrialSettings, undecayed: frozenset[str] = frozenset()
) -> torch.optim.Optimizer:
    """The plan's optimizer of the trained parameters, on the device or the host, after or in the backward pass. ``undecayed``:
    names of parameters without weight decay.
    """
    trained = [(name, parameter) for name, parameter in named_parameters if parameter.requires_grad]
    knobs, options, name = plan.candidate.knobs, plan.candidate.options, plan.workload.optimizer
    default_decay = 0.0 if name == "sgd" else WEIGHT_DECAY
    config = OptimizerConfig(
        name=name,
        kernel=options.optimizer_kernel,
        learning_rate=settings.learning_rate,
        weight_decay=default_decay if settings.weight_decay is None else settings.weight_decay,
        betas=settings.betas,
        undecayed=undecayed,
    )
    make = partial(_optimizer, config=config)
    if knobs.optimizer_in_backward:
        return _in_backward(trained, make, plan)
    if knobs.offload == "optimizer":
        return HostOptimizer(trained, make, pinned=options.pin_memory)
    return make(trained)


def _in_backward(trained: Sequence[Named], make: Callable[[Sequence[Named]], torch.optim.Optimizer], plan: Plan) -> InBackward:
    """An optimizer in the backward pass, on the device or (with offload) on the host, where a thread runs the updates."""
    offload, pinned = plan.candidate.knobs.offload, plan.candidate.options.pin_memory
    heads = [parameter for name, parameter in trained if name == "head.weight" and plan.model.tied_embeddings]
    if offload not in ("optimizer", "all"):
        return InBackward([make([pair]) for pair in trained], copies=heads)
    first = trained[0][1]
    device = torch.device(first.device_mesh.device_type) if isinstance(first, DTensor) else first.device
    host = partial(
        HostOptimizer,
        make=make,
        pinned=pinned,
        copy_streams=(CopyStream(device), CopyStream(device)),
        parameters_on_host=offload == "all",
    )
    return HostInBackward([host([pair]) for pair in trained], copies=heads)


def attach(optimizer: torch.optim.Optimizer, parts: Sequence[nn.Module], plan: Plan) -> None:
    """Registers an optimizer's hooks outside of its step: updates in the backward pass, gradients sent to the host, float8
    scales after the step.
    """
    layout, knobs = plan.candidate.layout, plan.candidate.knobs
    if knobs.float8_all_gather:
        from strategist_runtime.adapters import torchao  # optional dependency

        def find_scales(*_: object) -> None:
            for part in parts:
                torchao.find_scales(part)

        optimizer.register_step_post_hook(find_scales)
    uses_ddp = isinstance(parts[0], DistributedDataParallel)
    one_reduction = knobs.no_sync and (uses_ddp or uses_fsdp(layout, knobs.offload))
    reductions = 1 if one_reduction else plan.accumulation
    if isinstance(optimizer, InBackward):
        optimizer.attach(parts, comm_hook(plan), reductions)
    elif isinstance(optimizer, HostOptimizer) and layout.pp == 1 and not uses_ddp:
        optimizer.attach(reductions)


def scale_gradients(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Multiplies the gradients of the next step by ``factor``; no effect on an optimizer in the backward pass, which has used them
    already.

    torch's fused AdamW scales gradients as it reads them: one pass fewer, and on hosts a sixth of the update's time.
    """
    if isinstance(optimizer, InBackward):
        return
    if isinstance(optimizer, CombinedOptimizer):
        for part in optimizer.parts:
            scale_gradients(part, factor)
        return
    updating = optimizer.inner if isinstance(optimizer, HostOptimizer) else optimizer
    if type(updating) is AdamW and updating.defaults["fused"]:
        _scale_in_kernel(updating, factor)
        return
    gradient_norm.scale(optimizer.receive() if isinstance(optimizer, HostOptimizer) else _parameters(optimizer), factor)


def _scale_in_kernel(optimizer: AdamW, factor: float) -> None:
    """Sets the kernel's ``grad_scale``, as ``torch.amp.GradScaler`` does: the kernel divides gradients by this number on its
    device.
    """
    device = local(next(_parameters(optimizer))).device
    optimizer.grad_scale = None if factor == 1.0 else torch.full((), 1 / factor, device=device)  # type: ignore[attr-defined]


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[nn.Parameter]:
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


def _optimizer(named_parameters: Sequence[Named], *, config: OptimizerConfig) -> torch.optim.Optimizer:
    """One optimizer for these parameters; ``muon`` uses Muon for the matrices of layers and AdamW for all others (arXiv
    2502.16982).
    """
    if config.name != "muon":
        return _elementwise(named_parameters, config)
    matrices = [pair for pair in named_parameters if pair[0].startswith("layers.") and pair[1].dim() == 2]
    others = [pair for pair in named_parameters if not (pair[0].startswith("layers.") and pair[1].dim() == 2)]
    parts: list[torch.optim.Optimizer] = []
    if matrices:
        # No groups by mesh: torch.optim.Muon updates one matrix after the other.
        rate, decay = config.learning_rate, config.weight_decay
        parts.append(Muon([matrix for _, matrix in matrices], lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw"))
    if others:
        parts.append(_elementwise(others, config))
    return parts[0] if len(parts) == 1 else CombinedOptimizer(parts)


def _elementwise(named_parameters: Sequence[Named], config: OptimizerConfig) -> torch.optim.Optimizer:
    """``adamw`` (arXiv 1711.05101), also with states in bf16 or 8 bits; or ``sgd`` without momentum, and so without states."""
    groups, kernel = config.groups(named_parameters), config.kernel
    if config.name == "sgd":  # torch has no fused one for DTensors
        return SGD(groups, lr=config.learning_rate, foreach=kernel != "for_loop")
    arguments: dict[str, Any] = {"lr": config.learning_rate} | ({} if config.betas is None else {"betas": config.betas})
    if config.name == "adamw8bit":
        from strategist_runtime.adapters import torchao

        return torchao.adamw8bit(groups, **arguments)
    optimizer_class = AdamWBf16 if config.name == "adamw_bf16" else AdamW
    return optimizer_class(groups, **arguments, fused=kernel == "fused", foreach=kernel == "foreach")
