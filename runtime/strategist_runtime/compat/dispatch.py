"""Dispatch mode that observes each operation and its arguments."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode as DispatchMode
from torch.utils._pytree import tree_leaves as leaves
from torch.utils._pytree import tree_map_only

__all__ = ("DispatchMode", "accesses", "leaves", "tree_map_only")

SHAPES_ONLY = frozenset(
    ("empty_like", "new_empty", "new_empty_strided", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full",
     "rand_like", "randn_like")
)  # fmt: skip
"""Operators that look at the shape of what they are given."""


def accesses(operator: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> Iterator[tuple[Any, bool]]:
    """The arguments whose values an operator reads or changes, and whether it changes them; views do neither."""
    if operator.is_view or operator.overloadpacket.__name__ in SHAPES_ONLY:
        return
    schema = operator._schema.arguments
    named = {argument.name: argument for argument in schema}
    given = [*zip(schema, arguments, strict=False), *((named[name], value) for name, value in options.items() if name in named)]
    collective = operator.namespace == "c10d"  # whose schemas do not say what they change
    for argument, value in given:
        filled = collective and (argument.name.startswith("output") or argument.name == "tensors")
        yield value, filled or (argument.alias_info is not None and argument.alias_info.is_write)
