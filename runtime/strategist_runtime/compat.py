"""The one place for what differs between devices and versions of torch; the only user of torch's private names."""

import json
import platform
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.fsdp._fully_shard._fully_shard as fully_shard_module
import torch.nn.functional as F
import torch.optim._muon as muon_module
from torch import Tensor, nn
from torch._C._distributed_c10d import _dump_fr_trace_json  # type: ignore[attr-defined]
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.compiler import set_stance
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed._symmetric_memory import enable_symm_mem_for_group
from torch.distributed.checkpoint.staging import StagingOptions
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.distributed_c10d import _set_pg_timeout, _world
from torch.distributed.fsdp._fully_shard._fsdp_common import _from_local_no_grad
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.nn.parallel import DistributedDataParallel

# The first optimizer step and the first checkpointed layer import it: now, so that no step is charged for its time and memory.
import torch._dynamo  # isort: skip
import torch._functorch.config  # isort: skip
import torch._functorch.partitioners  # isort: skip

# The logits are such a view; nothing changes them in place.
warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")

CHECKPOINT = "checkpoint"
COLLECTIVE_BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
CPP_COMPILERS = ("g++", "clang++")
MESHES_ARE_NOTHING = "unsafe_treat_script_objects_as_zero_size"  # of torch._functorch.config


def device(kind: str, local_rank: int) -> torch.device:
    """This rank's device, made current."""
    if kind == "cpu":
        return torch.device("cpu")
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def devices_here(kind: str) -> int | None:
    """How many devices this machine has; None where a process is a device of its own."""
    return None if kind == "cpu" else torch.cuda.device_count()


def has_values(tensor: Tensor) -> bool:
    """Whether there are numbers in it: in a simulation tensors have shapes only."""
    return not isinstance(tensor, FakeTensor)


def with_values() -> AbstractContextManager[Any]:
    """Within, also what a simulation makes has values: numbers of ranks, which somebody is about to read."""
    return unset_fake_temporarily()


def synchronize(on: torch.device) -> None:
    """Waits until the device has done what was asked of it."""
    if on.type == "cuda":
        torch.cuda.synchronize(on)


def set_timeouts(seconds: float) -> None:
    """The deadline of every later collective of steps in every process group; a device mesh makes its groups with 30 minutes."""
    for group in list(_world.pg_map):
        if group.group_desc != CHECKPOINT:
            _set_pg_timeout(timedelta(seconds=seconds), group)


def checkpoint_group(seconds: float) -> dist.ProcessGroup:
    """A group of all ranks beside those of the device, which moves no tensor of it; its collectives wait for disks."""
    return dist.new_group(backend="gloo", timeout=timedelta(seconds=seconds), group_desc=CHECKPOINT)


def staging(*, pinned: bool) -> StagingOptions:
    """How a state is copied before it is written: into page-locked memory where there is a device that copies into it."""
    fast = pinned and torch.cuda.is_available()
    return StagingOptions(use_pinned_memory=fast, use_shared_memory=False, use_async_staging=False, use_non_blocking_copy=fast)


def local_part(parameter: Tensor) -> tuple[Tensor, tuple[int, ...], tuple[int, ...]]:
    """What this rank holds of a parameter: the tensor itself, its lengths, and where it begins in the whole."""
    if not isinstance(parameter, DTensor):
        return parameter, tuple(parameter.shape), (0,) * parameter.dim()
    with with_values():
        lengths, offsets = compute_local_shape_and_global_offset(parameter.shape, parameter.device_mesh, parameter.placements)
    return parameter.to_local(), tuple(lengths), tuple(offsets)


@contextmanager
def shared_reshard_groups() -> Iterator[None]:
    """Within, FSDP2 modules on one mesh share the process groups of ``reshard_after_forward=<int>``.

    torch makes a new mesh for each module, thus a communicator and its buffers for each layer.
    """
    original: Callable[..., Any] = fully_shard_module._get_post_forward_mesh_info
    made: dict[tuple[Any, int, type], Any] = {}

    def shared(reshard_after_forward: bool | int, mesh_info: Any) -> Any:
        key = (mesh_info.mesh, int(reshard_after_forward), type(reshard_after_forward))
        if key not in made:
            with with_values():
                made[key] = original(reshard_after_forward, mesh_info)
        # True means "the mesh of the parameters", which torch compares by identity.
        return mesh_info if reshard_after_forward is True else made[key]

    fully_shard_module._get_post_forward_mesh_info = shared
    try:
        yield
    finally:
        fully_shard_module._get_post_forward_mesh_info = original


def compiler(on: torch.device) -> str:
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
    a mesh; no layer draws random numbers, as eager recomputation is told too.
    """
    torch._dynamo.config.optimize_ddp = False
    if hasattr(torch._functorch.config, MESHES_ARE_NOTHING):
        setattr(torch._functorch.config, MESHES_ARE_NOTHING, True)
    if on.type == "cpu":
        torch._functorch.partitioners.has_recomputable_rng_ops = _no_random_numbers


def _no_random_numbers(fx_g: object) -> bool:
    return False


class Waited(torch.autograd.Function):
    """The value of a collective as a plain tensor, with its gradient.

    A compiled module waits by itself for an argument that is still under way, but where autograd does not see it: torch 2.13 then
    gives that argument no gradient, and without a word.
    """

    @staticmethod
    def forward(_context: Any, value: Tensor) -> Tensor:
        return value.trigger_wait() if isinstance(value, AsyncCollectiveTensor) else value.view_as(value)

    @staticmethod
    def backward(_context: Any, gradient: Tensor) -> Tensor:
        return gradient


def autocast(on: torch.device, dtype: torch.dtype) -> AbstractContextManager[None]:
    """Mixed precision for a model whose parameters nobody gathers: matmuls in ``dtype``, parameters as they are."""
    return torch.autocast(on.type, dtype)


@cache
def versions() -> dict[str, str]:
    """What ran: Python, torch, and the device's libraries."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    if torch.cuda.is_available():
        found["cuda"] = str(torch.version.cuda)
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        found["device"] = torch.cuda.get_device_name()
    return found


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal attention, [B, N, T, D]; ``key`` and ``value`` may have fewer heads.

    The one fused CUDA kernel for fp32 (memory-efficient) takes no groups, so there the heads are repeated for it.
    """
    grouped = query.shape[1] != key.shape[1]
    if grouped and query.is_cuda and query.dtype == torch.float32:
        groups = query.shape[1] // key.shape[1]
        key, value = (part.repeat_interleave(groups, dim=1) for part in (key, value))
        grouped = False
    return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)


def grouped_matmul(rows: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """[M, in] to [M, out] by ``weights`` [E, out, in] in one kernel; ``ends`` [E] is where each matrix's rows end, int32.

    Autocast leaves it alone, so what autocast would do is done here.
    """
    if torch.is_autocast_enabled(rows.device.type):
        dtype = torch.get_autocast_dtype(rows.device.type)
        rows, weights = rows.to(dtype), weights.to(dtype)
    return torch._grouped_mm(rows, weights.transpose(-2, -1), offs=ends)


def wake(on: torch.device) -> None:
    """Starts what the first use of a device or of a process group would start, so that it counts as no trial's memory."""
    square = torch.ones(512, 512, device=on)
    for dtype in (torch.float32, torch.bfloat16):
        _ = square.to(dtype) @ square.to(dtype)
    for group in list(_world.pg_map):
        dist.all_reduce(square, group=group)
    synchronize(on)


def forget_peak(on: torch.device) -> None:
    """Peak memory counts from here: the steps before it made states that last, and buffers that do not."""
    if on.type == "cuda":
        torch.cuda.reset_peak_memory_stats(on)


def peak_bytes(on: torch.device) -> int | None:
    """The most that tensors held at a time; None where the allocator does not count."""
    return torch.cuda.max_memory_allocated(on) if on.type == "cuda" else None


def collective_calls() -> list[tuple[int, str, str]]:
    """The latest collectives of this process in the order of asking: nanoseconds since 1970, the profiler's name for it, and the
    description of its process group.

    From torch's flight recorder, which always runs and holds 2000 calls; it leaves out what gloo sends and receives.
    """
    dump = json.loads(_dump_fr_trace_json(True, False))
    return [(call["time_created_ns"], call["profiling_name"], call["process_group"][1]) for call in dump.get("entries", ())]


def with_local(like: Tensor, local: Tensor) -> Tensor:
    """A tensor that lies in pieces as ``like`` does, whose piece here is ``local``, on whatever device."""
    return _from_local_no_grad(local, like._spec) if isinstance(like, DTensor) else local


def on_host(parameter: nn.Parameter, *, pinned: bool) -> nn.Parameter:
    """A copy of a parameter whose piece here lies in host memory."""
    local = local_part(parameter)[0].detach().to("cpu", copy=True)
    return nn.Parameter(with_local(parameter, local.pin_memory() if pinned else local))


def alias(parameter: nn.Parameter) -> nn.Parameter:
    """A parameter of its own in the same memory."""
    return nn.Parameter(with_local(parameter, local_part(parameter)[0].detach()))


def move(alias: nn.Parameter, parameter: nn.Parameter) -> None:
    """Follows a parameter whose memory is another now: FSDP2 locks its pages in the first forward pass."""
    local_part(alias)[0].data = local_part(parameter)[0].detach()


def changes(parameter: nn.Parameter) -> int:
    """How often the values of a parameter have been changed in place."""
    return local_part(parameter)[0]._version


def leave_gradients_alone(wrapped: DistributedDataParallel) -> None:
    """Has DDP not copy its buckets back to the gradients at the end of a backward pass, since whoever needed them has had them."""
    wrapped.reducer._set_optimizer_in_backward()  # type: ignore[attr-defined]


@contextmanager
def whole_matrices() -> Iterator[None]:
    """Within, torch's Muon works on whole matrices: each rank gathers one, and keeps its own piece of the result."""
    original: Callable[..., Tensor] = muon_module._zeropower_via_newtonschulz

    def whole(update: Tensor, *settings: Any) -> Tensor:
        if not isinstance(update, DTensor):
            return original(update, *settings)
        local = update.to_local()
        sent = _from_local_no_grad(local.to(device=update.device_mesh.device_type, dtype=torch.bfloat16), update._spec)
        result = original(sent.full_tensor(), *settings)
        _, lengths, offsets = local_part(update)
        piece = result[tuple(slice(first, first + length) for first, length in zip(offsets, lengths, strict=True))]
        return with_local(update, piece.to(device=local.device, dtype=update.dtype).contiguous())

    muon_module._zeropower_via_newtonschulz = whole  # type: ignore[assignment]
    try:
        yield
    finally:
        muon_module._zeropower_via_newtonschulz = original


def compiled_on_gpus_only() -> AbstractContextManager[Any]:
    """Within, what a library compiles for each shape runs as written on CPU, where compiling takes minutes and gains nothing."""
    return nullcontext() if torch.cuda.is_available() else set_stance("force_eager")
