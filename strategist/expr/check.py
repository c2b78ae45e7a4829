"""Checker of expressions: types and units are checked before anything is evaluated."""

from dataclasses import field
from functools import lru_cache

from strategist.contract.knobs import KnobValue
from strategist.expr.parse import Choice, ExpressionError, Literal, Node, Operation, Reference, parse
from strategist.expr.vocabulary import (
    BOOL,
    CATEGORY,
    UNITS,
    VOCABULARY,
    Dimension,
    near_miss,
    same_choice,
)
from strategist.frozen import frozen

NUMBER, TEXT = "number", "text"


@frozen
class Expression:
    """A checked expression. ``names`` are all vocabulary names in it."""

    text: str
    tree: Node = field(repr=False, compare=False)
    names: frozenset[str]

    @property
    def phases(self) -> frozenset[str]:
        """Phases of its names."""
        return frozenset(VOCABULARY[name].phase for name in self.names)


@frozen
class _Type:
    kind: str
    dimension: Dimension = UNITS["none"]
    choices: tuple[KnobValue, ...] = ()


def condition(text: str) -> Expression:
    """Checked expression with a truth value.

    Raises:
        ExpressionError: with the column, and the nearest known name for an unknown one.
    """
    return _typed_expression(text, BOOL)


def quantity(text: str, unit: str | None = None) -> Expression:
    """Checked expression with a number as value, of the dimension of ``unit`` if given.

    Raises:
        ExpressionError: as for :func:`condition`.
    """
    found = _typed_expression(text, NUMBER)
    if unit is not None and (dimension := _type_of(found.tree, set()).dimension) != UNITS[unit]:
        units = f"this is {show_dimension(dimension)}, and {show_dimension(UNITS[unit])} is needed"
        raise ExpressionError(units, found.tree.column, "unit")
    return found


@lru_cache(maxsize=4096)  # test cases of a deck repeat the same quantities
def _typed_expression(text: str, expected_kind: str) -> Expression:
    tree = parse(text)
    names: set[str] = set()
    kind = _type_of(tree, names).kind
    if kind != expected_kind:
        expected = "true or false" if expected_kind == BOOL else "a number"
        raise ExpressionError(f"{expected} is needed, and this is a {kind}", tree.column, "type")
    return Expression(text=text, tree=tree, names=frozenset(names))


def _type_of(node: Node, names: set[str]) -> _Type:
    if isinstance(node, Literal):
        kind = BOOL if isinstance(node.value, bool) else TEXT if isinstance(node.value, str) else NUMBER
        return _Type(kind=kind, dimension=node.dimension)
    if isinstance(node, Reference):
        return _type_of_name(node, names)
    if isinstance(node, Operation):
        if node.operator in ("==", "!=", "in"):
            return _equality(node, names)
        types = [_type_of(operand, names) for operand in node.operands]
        return _logic(node, types) if node.operator in ("and", "or", "not") else _arithmetic(node, types)
    raise ExpressionError("a list stands only after in; compare with one value", node.column, "type")


def _type_of_name(node: Reference, names: set[str]) -> _Type:
    entry = VOCABULARY.get(node.name)
    if entry is None:
        raise ExpressionError(f"unknown name {node.name}{_hint(node.name)}", node.column, "name", node.name, VOCABULARY)
    names.add(node.name)
    kind = entry.kind if entry.kind in (BOOL, CATEGORY) else NUMBER
    return _Type(kind=kind, dimension=UNITS[entry.unit], choices=entry.choices if entry.kind == CATEGORY else ())


def _hint(word: str) -> str:
    if any(word in entry.choices for entry in VOCABULARY.values()):
        return f"; text is quoted: '{word}'"
    return near_miss(word, VOCABULARY)


def _logic(node: Operation, types: list[_Type]) -> _Type:
    for operand, kind in zip(node.operands, types, strict=True):
        if kind.kind != BOOL:
            raise ExpressionError(f"{node.operator} needs conditions, and this is a {kind.kind}", operand.column, "type")
    return _Type(kind=BOOL)


def _equality(node: Operation, names: set[str]) -> _Type:
    left, right = node.operands
    kind = _type_of(left, names)
    for other in right.items if isinstance(right, Choice) else (right,):
        other_kind = _type_of(other, names)
        if CATEGORY in (kind.kind, other_kind.kind):
            _check_choice(left, kind, other, other_kind)
        elif kind.kind != other_kind.kind or TEXT in (kind.kind, other_kind.kind):
            raise ExpressionError(f"a {kind.kind} cannot equal a {other_kind.kind}", node.column, "type")
        else:
            _check_units(node, [kind, other_kind])
    return _Type(kind=BOOL)


def _check_choice(left: Node, kind: _Type, right: Node, other: _Type) -> None:
    value, choices = (right, kind.choices) if kind.kind == CATEGORY else (left, other.choices)
    if not isinstance(value, Literal):
        raise ExpressionError("a category is compared with one of its values; write one", value.column, "type")
    if not any(same_choice(value.value, choice) for choice in choices):
        allowed = ", ".join(repr(choice).lower() if isinstance(choice, bool) else repr(choice) for choice in choices)
        words = [choice for choice in choices if isinstance(choice, str)]
        raise ExpressionError(f"{value.value!r} is not one of {allowed}", value.column, "type", str(value.value), words)


def _arithmetic(node: Operation, types: list[_Type]) -> _Type:
    for operand, kind in zip(node.operands, types, strict=True):
        if kind.kind != NUMBER:
            raise ExpressionError(f"{node.operator} needs numbers, and this is a {kind.kind}", operand.column, "type")
    first = types[0].dimension
    if node.operator == "*":
        return _Type(kind=NUMBER, dimension=_combined_dimension(first, types[1].dimension, 1))
    if node.operator in ("/", "//"):
        return _Type(kind=NUMBER, dimension=_combined_dimension(first, types[1].dimension, -1))
    if node.operator == "sqrt":
        return _Type(kind=NUMBER, dimension=_square_root_dimension(node, first))
    _check_units(node, types)
    if node.operator in ("<", "<=", ">", ">=", "divides"):
        return _Type(kind=BOOL)
    return _Type(kind=NUMBER, dimension=first)


def _combined_dimension(left: Dimension, right: Dimension, sign: int) -> Dimension:
    return (left[0] + sign * right[0], left[1] + sign * right[1], left[2] + sign * right[2])


def _square_root_dimension(node: Operation, square: Dimension) -> Dimension:
    if any(power % 2 for power in square):
        raise ExpressionError(f"sqrt of {show_dimension(square)} has no unit: give it a square", node.column, "unit")
    return (square[0] // 2, square[1] // 2, square[2] // 2)


def _check_units(node: Operation, types: list[_Type]) -> None:
    for kind, operand in zip(types[1:], node.operands[1:], strict=False):
        if kind.dimension != types[0].dimension:
            units = f"{show_dimension(types[0].dimension)} and {show_dimension(kind.dimension)}"
            has_bare_number = any(
                isinstance(part, Literal) and part.dimension == UNITS["none"] for part in (node.operands[0], operand)
            )
            error = "bare" if has_bare_number else "unit"
            raise ExpressionError(f"{node.operator} between {units}: give both the same unit", node.column, error)


def show_dimension(dimension: Dimension) -> str:
    """A dimension as text, such as ``bytes/s``; ``a plain number`` without dimension."""
    powers = list(zip(("bytes", "s", "flop"), dimension, strict=True))
    numerator = [name if power == 1 else f"{name}^{power}" for name, power in powers if power > 0]
    denominator = [name if power == -1 else f"{name}^{-power}" for name, power in powers if power < 0]
    return ("*".join(numerator) or ("1" if denominator else "a plain number")) + "".join(f"/{name}" for name in denominator)
