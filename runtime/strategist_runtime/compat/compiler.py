"""torch.compile: its back end, and the configuration that it needs before the first call."""

import shutil
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.compiler import set_stance
from torch.distributed._symmetric_memory import enable_symm_mem_for_group
from torch.distributed.device_mesh import DeviceMesh

# The first optimizer step and the first checkpointed layer import it: now, so that no step is charged for its time and memory.
import torch._dynamo  # isort: skip
import torch._functorch.config  # isort: skip
import torch._functorch.partitioners  # isort: skip

CPP_COMPILERS = ("g++", "clang++")
MESHES_ARE_NOTHING = "unsafe_treat_script_objects_as_zero_size"  # of torch._functorch.config


def compiler_backend(on: torch.device) -> str:
    """The back end of torch.compile: inductor, which fuses.

    On CPU inductor writes C++, so without a compiler there it is aot_eager: the same graphs and the same choice of what backward
    keeps, with torch's own kernels instead of fused ones. Such a trial shows that the plan runs, not how fast it would be.
    """
    return "inductor" if on.type == "cuda" or any(map(shutil.which, CPP_COMPILERS)) else "aot_eager"


def set_activation_budget(share: float) -> None:
    """Has the compiler save at most ``share`` of the activations that it would save otherwise, and compute the rest again."""
    torch._functorch.config.activation_memory_budget = share


def overlap_tensor_parallel(mesh: DeviceMesh) -> None:
    """Has the compiler cut matmuls and their collectives into pieces that overlap, through memory that peers can read (CUDA only).

    Never run here for want of several GPUs; as torchtitan does it (``distributed/tensor_parallel.maybe_enable_async_tp``).
    """
    torch._inductor.config._micro_pipeline_tp = True
    enable_symm_mem_for_group(mesh.get_group().group_name)


def prepare_compiler(on: torch.device) -> None:
    """Stops Dynamo from cutting compiled layers at DDP's buckets: the layers are the cuts, and recomputed ones cannot be cut.

    Lets the partitioner count a graph's meshes as nothing: torch 2.13 refuses to guess what such an input holds, which for a mesh
    is no tensor. On CPU it would also keep the state of the random generator for attention that is recomputed, and confuse it with
    a mesh; no layer draws random numbers, as for eager recomputation.
    """
    torch._dynamo.config.optimize_ddp = False
    if hasattr(torch._functorch.config, MESHES_ARE_NOTHING):
        setattr(torch._functorch.config, MESHES_ARE_NOTHING, True)
    if on.type == "cpu":
        torch._functorch.partitioners.has_recomputable_rng_ops = _no_random_numbers


def _no_random_numbers(fx_g: object) -> bool:
    return False


def compiled_on_gpus_only() -> AbstractContextManager[Any]:
    """Within, what a library compiles for each shape runs as written on CPU, where compiling takes minutes and gains nothing."""
    return nullcontext() if torch.cuda.is_available() else set_stance("force_eager")
