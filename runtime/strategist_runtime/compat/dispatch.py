"""Dispatch mode that observes each operation and its arguments."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode as DispatchMode
from torch.utils._pytree import tree_leaves as leaves, tree_map_only

__all__ = ("DispatchMode", "HigherOrderOperator", "accesses", "leaves", "tree_map_only", "zeros_of")

SHAPES_ONLY = frozenset(
    ("empty_like", "new_empty", "new_empty_strided", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full",
     "rand_like", "randn_like")
)  # fmt: skip
"""Operators that use only the shape of their arguments."""


def accesses(operator: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> Iterator[tuple[Any, bool]]:
    """The arguments whose values an operator reads or writes, and whether it writes them; view operators do neither."""
    if operator.is_view or operator.overloadpacket.__name__ in SHAPES_ONLY:
        return
    schema = operator._schema.arguments
    arguments_by_name = {argument.name: argument for argument in schema}
    values = [
        *zip(schema, arguments, strict=False),
        *((arguments_by_name[name], value) for name, value in options.items() if name in arguments_by_name),
    ]
    collective = operator.namespace == "c10d"  # schemas of collectives do not mark the arguments that they write
    for argument, value in values:
        is_output = collective and (argument.name.startswith("output") or argument.name == "tensors")
        yield value, is_output or (argument.alias_info is not None and argument.alias_info.is_write)


def zeros_of(operator: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Zeros of the shapes and types of an operator's results, without computing them."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        shapes = operator(*tree_map_only(torch.Tensor, mode.from_tensor, arguments), **options)
    return tree_map_only(torch.Tensor, lambda found: torch.zeros(found.shape, dtype=found.dtype, device=found.device), shapes)
