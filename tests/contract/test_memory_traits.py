"""Memory traits of a stack accept known values only."""

import pytest

from strategist.contract.memory_traits import MemoryTraits
from strategist.errors import InputError
from strategist.profiles.stacks import load_stack, stack_names


@pytest.mark.parametrize(
    "wrong", [{"parameters": "halves"}, {"split": "by hand"}, {"logged": "middle"}], ids=lambda item: next(iter(item))
)
def test_an_unknown_value_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(InputError, match="is not known"):
        MemoryTraits(**wrong)  # type: ignore[arg-type]


def test_every_shipped_stack_names_its_source() -> None:
    assert all(load_stack(name).source for name in stack_names())


def test_nanotron_keeps_parameter_copies_and_torchtitan_shards() -> None:
    assert load_stack("nanotron").memory_traits.parameters == "copies"
    assert load_stack("torchtitan").memory_traits.parameters == "shards"
