"""Kinds of computation in a profiled step: optimizer, recomputation, attention, matmuls; all other is memory-bound.

The profiler records a sequence number for each operator that autograd may have to differentiate. Autograd is off in a backward
pass, so an operator with a sequence number there is recomputation. So is everything in an ``RECOMPUTE`` span.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from strategist_runtime.measure.intervals import Interval, intersect
from strategist_runtime.measure.spans import RECOMPUTE, UPDATE

ENGINE = "autograd::engine::evaluate_function"
OPTIMIZER = "Optimizer.step#"
KINDS = ("optimizer", "recompute", "attention", "matmul")
"""Kinds in order of precedence, since they contain each other: a matmul of a recomputation counts as recomputation."""

MATMULS = frozenset(
    f"aten::{name}" for name in ("linear", "matmul", "mm", "addmm", "bmm", "baddbmm", "_scaled_mm", "_grouped_mm", "einsum", "mv")
)
CUDA_CALL = re.compile("cu(da)?[A-Z]")
"""Names of CUDA API calls, such as cudaLaunchKernel and cuLaunchKernelEx."""

ATTENTION_PARTS = ("scaled_dot_product", "flash_attention", "efficient_attention", "flex_attention")


def interval(event: Any) -> Interval:
    """Begin and end of a profiler event, in nanoseconds."""
    return event.start_ns(), event.start_ns() + event.duration_ns()


def on_cpu(event: Any) -> bool:
    return event.device_type() == torch.autograd.DeviceType.CPU


def spans_of(events: Iterable[Any], *prefixes: str) -> list[Interval]:
    """Intervals of the host's events whose names begin with one of ``prefixes``."""
    return [interval(event) for event in events if event.name().startswith(prefixes) and on_cpu(event)]


def host_kinds(events: Sequence[Any]) -> dict[str, list[Interval]]:
    """Intervals of the host's operators by kind; the kinds overlap."""
    backward = spans_of(events, ENGINE)
    differentiable = [interval(event) for event in events if event.sequence_nr() >= 0 and event.name().startswith("aten::")]
    return {
        "optimizer": spans_of(events, OPTIMIZER, UPDATE),
        "recompute": [*intersect(differentiable, backward), *spans_of(events, RECOMPUTE)],
        "attention": [interval(event) for event in events if on_cpu(event) and _is_attention(event.name())],
        "matmul": [interval(event) for event in events if event.name() in MATMULS],
    }


def kernel_kinds(events: Sequence[Any], kernels: Iterable[Any]) -> dict[str, list[Interval]]:
    """Intervals of kernels by kind: the kind of the operator that launched a kernel; for attention and matmuls also by the
    kernel's name.
    """
    kinds = host_kinds(events)
    launched = _launchers(events)
    found: dict[str, list[Interval]] = {kind: [] for kind in KINDS}
    merged_spans = {kind: intersect(spans, spans) for kind, spans in kinds.items()}
    for kernel in kernels:
        operator = launched.get(kernel.linked_correlation_id())
        time_ns = kernel.start_ns() if operator is None else operator.start_ns()
        kind = next((kind for kind in KINDS if operator is not None and _inside(time_ns, merged_spans[kind])), "")
        kind = kind or _kind_by_name(kernel.name().lower())
        if kind:
            found[kind].append(interval(kernel))
    return found


def _kind_by_name(kernel: str) -> str:
    """The kind by a kernel's name, for kernels of compiled graphs and libraries; empty if unknown."""
    if any(part in kernel for part in ATTENTION_PARTS):
        return "attention"
    return "matmul" if "gemm" in kernel or "cutlass" in kernel else ""


def launched_within(spans: Sequence[Interval], events: Sequence[Any], kernels: Iterable[Any]) -> list[Any]:
    """The kernels launched by operators within these spans of the host."""
    if not spans:
        return []
    launched, merged_spans = _launchers(events), intersect(spans, spans)
    operators = ((kernel, launched.get(kernel.linked_correlation_id())) for kernel in kernels)
    return [kernel for kernel, operator in operators if operator is not None and _inside(operator.start_ns(), merged_spans)]


def _launchers(events: Iterable[Any]) -> dict[int, Any]:
    """The host's operators by the correlation id of the kernels that they launch.

    CUDA API calls are host events too, with their own ids; they are linked to their operator and left out.
    """
    operators = (event for event in events if on_cpu(event) and event.correlation_id() and not event.linked_correlation_id())
    return {event.correlation_id(): event for event in operators if not CUDA_CALL.match(event.name())}


def _inside(time_ns: int, spans: Sequence[Interval]) -> bool:
    """Whether ``time_ns`` is in one of these disjoint, sorted intervals."""
    low, high = 0, len(spans)
    while low < high:
        middle = (low + high) // 2
        if spans[middle][1] <= time_ns:
            low = middle + 1
        else:
            high = middle
    return low < len(spans) and spans[low][0] <= time_ns


def _is_attention(name: str) -> bool:
    return name.startswith("aten::") and any(part in name for part in ATTENTION_PARTS)
