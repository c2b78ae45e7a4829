"""torch.compile: its back end, and the configuration that must precede the first call."""

import shutil
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.compiler import set_stance
from torch.distributed._symmetric_memory import enable_symm_mem_for_group
from torch.distributed.device_mesh import DeviceMesh

# The first optimizer step and the first checkpointed layer import these. Imported here, they add no time or memory to a step.
import torch._dynamo  # isort: skip
import torch._functorch.config  # isort: skip
import torch._functorch.partitioners  # isort: skip

CPP_COMPILERS = ("g++", "clang++")
MESHES_TAKE_NO_MEMORY = "unsafe_treat_script_objects_as_zero_size"  # a setting of torch._functorch.config


def is_compiled(module: nn.Module) -> bool:
    """Whether calls of the module run compiled code (``nn.Module.compile``)."""
    return module._compiled_call_impl is not None


def compiler_backend(device: torch.device) -> str:
    """The back end of torch.compile: inductor, which fuses kernels.

    On CPU inductor writes C++. Without a C++ compiler the back end is aot_eager there: the same graphs and the same choice of
    tensors saved for backward, with torch's unfused kernels. Such a trial shows that the plan runs, not how fast.
    """
    return "inductor" if device.type == "cuda" or any(map(shutil.which, CPP_COMPILERS)) else "aot_eager"


def set_activation_budget(share: float) -> None:
    """Makes the compiler save at most ``share`` of the activations that it would save otherwise, and recompute the rest."""
    torch._functorch.config.activation_memory_budget = share


def overlap_tensor_parallel(mesh: DeviceMesh) -> None:
    """Makes the compiler split matmuls and their collectives into parts that overlap, through symmetric memory (CUDA only).

    Not tested, since it needs several GPUs; as in torchtitan (``distributed/tensor_parallel.maybe_enable_async_tp``).
    """
    torch._inductor.config._micro_pipeline_tp = True
    enable_symm_mem_for_group(mesh.get_group().group_name)


def prepare_compiler(device: torch.device) -> None:
    """Stops Dynamo from splitting compiled layers at DDP's buckets: layers are compiled one by one, and recomputed ones cannot be
    split.

    Makes the partitioner count device meshes in a graph as size 0: torch 2.13 refuses to guess the size of such an input. On CPU
    the partitioner would also save the random generator's state for recomputed attention, and confuse it with a mesh. It need
    not: no layer draws random numbers, as eager recomputation assumes as well.
    """
    torch._dynamo.config.optimize_ddp = False
    if hasattr(torch._functorch.config, MESHES_TAKE_NO_MEMORY):
        setattr(torch._functorch.config, MESHES_TAKE_NO_MEMORY, True)
    if device.type == "cpu":
        torch._functorch.partitioners.has_recomputable_rng_ops = _no_random_numbers


def _no_random_numbers(fx_g: object) -> bool:
    return False


def compiled_on_gpus_only() -> AbstractContextManager[Any]:
    """Context manager that disables torch.compile on CPU, where compiling each shape takes minutes and gains nothing."""
    return nullcontext() if torch.cuda.is_available() else set_stance("force_eager")
