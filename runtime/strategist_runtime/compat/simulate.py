"""Private names of torch for simulating a cluster."""

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.fsdp._fully_shard._fsdp_param as fsdp_parameter
import torch.distributed.tensor._dispatch as tensor_dispatch
import torch.distributed.tensor._sharding_prop as propagation
from torch import Tensor
from torch._subclasses.fake_impls import register_op_impl
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import schedules
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from strategist_runtime.compat.groups import COLLECTIVE_BACKENDS

try:
    from torch.distributed.pipelining.stage import InferenceMode
except ImportError:  # before torch 2.12 stages have no mode, and do not agree on one: example tensors suffice for their shapes
    InferenceMode = None  # type: ignore[assignment, misc]

aten = torch.ops.aten
SCALAR = aten._local_scalar_dense.default
WAIT = torch.ops._c10d_functional.wait_tensor.default
COLLECTIVE_NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "fsdp")
"""Namespaces of operators whose results are, or were, communicated."""
FLASH = "_scaled_dot_product_flash_attention"
_propagating = 0


def init_fake_process_group(rank: int, world_size: int, *, gloo: bool, values: bool = False) -> None:
    """Makes this process rank ``rank`` of ``world_size``, without peers: collectives return at once. Cannot be undone.

    ``gloo``: a stage's sent tensors live as long as the work that sends them; otherwise they are freed once sent, as by NCCL's
    watchdog. ``values``: tensors have values.
    """
    COLLECTIVE_BACKENDS.update(dict.fromkeys(COLLECTIVE_BACKENDS, "fake"))
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world_size)
    schedules._PipelineSchedule._warmup_p2p = _skip_shape_inference  # type: ignore[method-assign, assignment]
    if gloo:
        _keep_sent_tensors()
    if values:
        return
    _keep_meshes_real()
    _hide_propagation()
    fsdp_parameter._chunk_with_empty = Chunks  # type: ignore[assignment]
    register_op_impl(aten._grouped_mm.default)(_grouped_matmul)
    for kernel in (FLASH, f"{FLASH}_backward"):  # torch counts FLOPs of CUDA's kernels only; both take the same arguments
        cpu_kernel = getattr(aten, kernel.replace("attention", "attention_for_cpu"))
        flop_registry.setdefault(cpu_kernel, flop_registry[getattr(aten, kernel)])


def replace_reducer(reducer: type[Any], logger: type[Any]) -> None:
    """Makes DDP use these classes instead of torch's, which are C++ code and read values. Cannot be undone."""
    dist.Reducer, dist.Logger = reducer, logger  # type: ignore[misc]
    dist._register_comm_hook = _register_hook
    original: Callable[..., Any] = dist.all_reduce

    def all_reduce(tensor: Tensor, *arguments: Any, async_op: bool = False, **options: Any) -> Any:
        work = original(tensor, *arguments, async_op=async_op, **options)
        return _ReduceWork(tensor) if async_op else work

    dist.all_reduce = all_reduce


def _register_hook(reducer: Any, state: Any, comm_hook: Any) -> None:
    reducer.register_hook(state, comm_hook)


def disable_pinned_memory() -> None:
    """Makes ``pin_memory`` return the tensor itself, which needs no driver. Cannot be undone."""
    Tensor.pin_memory = lambda tensor, *_: tensor  # type: ignore[method-assign]


class Chunks(Sequence[Tensor]):
    """The chunks of a tensor that ``_chunk_with_empty`` returns, each made when it is read: of the chunks of all ranks, FSDP2 reads
    its own and the first.
    """

    def __init__(self, tensor: Tensor, num_chunks: int, dim: int) -> None:
        self._tensor, self._count, self._dim = tensor, num_chunks, dim

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self._count:  # ends an iteration, too
            raise IndexError(f"chunk {index} of {self._count}")
        size = self._tensor.size(self._dim)
        most = -(-size // self._count)
        length = min(most, size - index * most)
        return self._tensor.narrow(self._dim, index * most, length) if length > 0 else self._tensor.new_empty(0)


class AnyNumber(TorchDispatchMode):
    """Context in which reading a number from a tensor returns 1, since simulated tensors have no values."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return 1.0 if func is SCALAR else func(*args, **(kwargs or {}))


def fake_tensor_mode() -> FakeTensorMode:
    """The mode in which tensors have shapes, types and lifetimes, and nothing is computed."""
    return FakeTensorMode(allow_non_fake_inputs=True)


def in_sharding_propagation() -> bool:
    """Whether torch is inferring a DTensor's shape; for that it makes whole tensors that no rank would allocate."""
    return _propagating > 0


def flops_of(operator: Any, arguments: Any, options: Any, result: Any) -> int:
    """FLOPs of one operator, as torch counts them: matmuls and attention only, 2 per multiplication; masks are not deducted."""
    count = flop_registry.get(operator.overloadpacket)
    if count is not None and "_scaled_dot_product" in operator.name():
        arguments = _with_query_heads(arguments)
    return 0 if count is None else int(count(*arguments, **options, out_val=result))


def _with_query_heads(arguments: Sequence[Any]) -> list[Any]:
    """An attention's arguments as shapes, with the query's number of heads for keys and values, which torch 2.11 needs for its
    count; later versions count the same either way.
    """
    shapes = [argument.shape if isinstance(argument, Tensor) else argument for argument in arguments]
    query_heads = max(shape[1] for shape in shapes if isinstance(shape, torch.Size) and len(shape) == 4)
    return [(shape[0], query_heads, *shape[2:]) if isinstance(shape, torch.Size) and len(shape) == 4 else shape for shape in shapes]


def in_backward() -> bool:
    """Whether the autograd engine is running."""
    return torch._C._current_graph_task_id() != -1


@contextmanager
def watched_resizes(on_resize: Callable[[torch.UntypedStorage], None]) -> Iterator[None]:
    """Context in which ``on_resize`` is called for each storage that changes its size, as FSDP2's do when parameters are freed and
    gathered.
    """
    original = torch.UntypedStorage.resize_

    def resize(storage: torch.UntypedStorage, size: int) -> Any:
        result = original(storage, size)
        on_resize(storage)
        return result

    torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        torch.UntypedStorage.resize_ = original  # type: ignore[method-assign]


@contextmanager
def watched_copies(copy: Callable[[Tensor, bool], Tensor]) -> Iterator[None]:
    """Context in which ``copy`` replaces FSDP2's copies between device and host, which are the same device in a simulation;
    its second argument is whether the host waits.
    """
    original_to = torch.Tensor.to

    def to(tensor: Tensor, *arguments: Any, **options: Any) -> Tensor:
        changes_device = "non_blocking" in options and isinstance(arguments[0], torch.device)
        return copy(tensor, not options["non_blocking"]) if changes_device else original_to(tensor, *arguments, **options)

    torch.Tensor.to = to  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        torch.Tensor.to = original_to  # type: ignore[method-assign]


def at_end(storage: torch.UntypedStorage, callback: Callable[[], None]) -> None:
    """Calls ``callback`` when the storage is freed."""
    weakref.finalize(storage, callback).atexit = False


def gradients_given(operator: Any, arguments: Any) -> Iterable[Tensor]:
    """The unsharded gradients that FSDP2 passes to an operator that shards them."""
    return arguments[0] if operator is torch.ops.fsdp.chunk_cat.default else ()


def fsdp_tensors(module: FSDPModule) -> Iterator[tuple[str, Tensor]]:
    """FSDP2's tensors of a module, by part: shards, gathered parameters, and gradients not yet reduced."""
    group = module._get_fsdp_state()._fsdp_param_group
    for parameter in () if group is None else group.fsdp_params:
        yield "parameters", parameter._sharded_param_data
        for tensor in parameter.all_gather_outputs:
            yield "unsharded_parameters", tensor
        unsharded = getattr(parameter, "_unsharded_param", None)
        if unsharded is not None:
            yield "unsharded_parameters", unsharded
            if unsharded.grad is not None:
                yield "gradients", unsharded.grad
        if parameter.unsharded_accumulated_grad is not None:
            yield "gradients", parameter.unsharded_accumulated_grad


def _grouped_matmul(mode: Any, _operator: Any, left: Tensor, right: Tensor, *arguments: Any, **options: Any) -> Any:
    """Shape function of the grouped matmul for other types than bf16: the kernels support them, torch's own shape function does
    not.
    """
    if left.dtype == torch.bfloat16:
        return NotImplemented
    groups = [int(arguments[0].shape[0])] if left.dim() == right.dim() == 2 else []
    with mode:
        return left.new_empty(*groups, left.shape[-2], right.shape[-1])


def _keep_meshes_real() -> None:
    """Gives tensors of device meshes values: torch makes meshes while it wraps modules, and reads ranks from them."""
    original = DeviceMesh.__init__

    def make(mesh: DeviceMesh, *arguments: Any, **options: Any) -> None:
        with unset_fake_temporarily():
            original(mesh, *arguments, **options)

    DeviceMesh.__init__ = make  # type: ignore[method-assign, assignment]


def _hide_propagation() -> None:
    propagator = propagation.ShardingPropagator
    original = propagator._propagate_tensor_meta_non_cached

    def propagate(self: Any, schema: Any) -> Any:
        global _propagating
        _propagating += 1
        try:
            return original(self, schema)
        finally:
            _propagating -= 1

    propagator._propagate_tensor_meta_non_cached = propagate  # type: ignore[method-assign, assignment]
    propagation._are_we_tracing = tensor_dispatch._are_we_tracing = lambda: False  # otherwise torch caches nothing


def _skip_shape_inference(_self: Any, stages: Any, *_: Any) -> None:
    """Replaces the messages by which stages agree on whether shapes are known: they are."""
    for stage in stages:
        stage._inference_mode = InferenceMode.STATIC


class _ReduceWork:
    """A work whose future has the reduced tensor, as hooks expect; the one of torch's fake group has none."""

    def __init__(self, tensor: Tensor) -> None:
        self.future: torch.futures.Future[list[Tensor]] = torch.futures.Future()
        self.future.set_result([tensor])

    def wait(self) -> None:
        """Returns at once."""

    def get_future(self) -> "torch.futures.Future[list[Tensor]]":
        return self.future


class _SendWork:
    """A work that references the sent tensors, so that they live as long as the work."""

    def __init__(self, operations: Iterable[dist.P2POp]) -> None:
        self.tensors = [operation.tensor for operation in operations if operation.op is dist.isend]

    def wait(self) -> None:
        """Returns at once."""


def _keep_sent_tensors() -> None:
    original = schedules._batch_p2p

    def batch(operations: list[dist.P2POp], **options: Any) -> list[Any]:
        return [*original(operations, **options), _SendWork(operations)]

    schedules._batch_p2p = batch  # type: ignore[assignment]
