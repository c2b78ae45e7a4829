"""A frozen value behaves as a dataclass that is frozen and keyword-only."""

import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from typing import Any

import pytest

from strategist.frozen import frozen


@dataclass(frozen=True, kw_only=True)
class _Twin:
    """The same fields, as ``dataclasses`` makes them."""

    name: str
    sizes: tuple[int, ...] = field(default_factory=tuple)
    note: str = field(default="", compare=False)
    source: str = field(default="", repr=False)


@frozen
class _Value:
    name: str
    sizes: tuple[int, ...] = field(default_factory=tuple)
    note: str = field(default="", compare=False)
    source: str = field(default="", repr=False)


@frozen
class _Empty:
    pass


@frozen
class _Larger(_Value):
    extra: float = 0.0


@frozen
class _Named:
    name: str

    def __repr__(self) -> str:
        return f"<{self.name}>"


CASES: tuple[dict[str, Any], ...] = (
    {"name": "a"}, {"name": "a", "sizes": (1, 2)}, {"name": "a", "note": "other"}, {"name": "a", "source": "other"}, {"name": "b"},
)  # fmt: skip


@pytest.mark.parametrize("left", CASES)
@pytest.mark.parametrize("right", CASES)
def test_values_are_equal_and_hashed_where_dataclasses_are(left: dict[str, Any], right: dict[str, Any]) -> None:
    same = _Twin(**left) == _Twin(**right)
    assert (_Value(**left) == _Value(**right)) is same
    assert (hash(_Value(**left)) == hash(_Value(**right))) is same
    assert hash(_Value(**left)) == hash(_Twin(**left))


def test_values_of_two_classes_differ() -> None:
    values: list[object] = [_Value(name="a"), _Larger(name="a"), _Larger(name="a", extra=1.0), _Twin(name="a"), _Empty()]
    assert [values.index(value) for value in values] == [0, 1, 2, 3, 4]
    assert _Empty() == _Empty()


@pytest.mark.parametrize("case", CASES)
def test_a_value_is_shown_copied_and_pickled_as_a_dataclass_is(case: dict[str, Any]) -> None:
    assert repr(_Value(**case)) == repr(_Twin(**case)).replace("_Twin", "_Value")
    assert asdict(_Value(**case)) == asdict(_Twin(**case))
    assert replace(_Value(**case), name="c") == _Value(**{**case, "name": "c"})
    assert pickle.loads(pickle.dumps(_Value(**case))) == _Value(**case)
    assert [item.name for item in fields(_Larger)] == ["name", "sizes", "note", "source", "extra"]


def test_a_value_keeps_its_own_methods() -> None:
    assert repr(_Named(name="a")) == "<a>"


def test_fields_are_named_and_not_assigned() -> None:
    value: Any = _Value
    with pytest.raises(TypeError):
        value("a")
    with pytest.raises(FrozenInstanceError):
        value(name="a").name = "b"
    with pytest.raises(FrozenInstanceError):
        del value(name="a").name
