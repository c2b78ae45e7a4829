"""Two evaluators of expressions: on scalars, to true, false or unknown; on columns, to a mask over all candidates.

Unknown values follow Kleene's logic: ``false and unknown`` is false, ``true or unknown`` is true. A number is unknown where a fact
is missing or a divisor is zero. On columns ``*`` is computed in float64, exact to 2**53, so that it cannot overflow.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strategist.expr.check import Expression
from strategist.expr.columns import Columns
from strategist.expr.parse import Choice, Literal, Node, Operation, Reference
from strategist.expr.vocabulary import same_choice

Facts = Mapping[str, Any]
"""Values by vocabulary name; a missing name, None or NaN is unknown."""

Mask = NDArray[np.bool_]


def _divides(a: Any, b: Any) -> Any:
    return b % a == 0


_SCALAR: dict[str, Callable[..., Any]] = {
    "neg": lambda a: -a, "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b,
    "//": lambda a, b: a // b, "%": lambda a, b: a % b, "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    "min": min, "max": max, "ceil": math.ceil, "floor": math.floor, "abs": abs, "sqrt": math.sqrt, "divides": _divides,
}  # fmt: skip
_COLUMN: dict[str, Callable[..., Any]] = _SCALAR | {
    "*": lambda a, b: np.multiply(a, b, dtype=np.float64), "ceil": np.ceil, "floor": np.floor, "sqrt": np.sqrt,
    "min": lambda *all_: _fold(np.minimum, all_), "max": lambda *all_: _fold(np.maximum, all_),
}  # fmt: skip
_CONDITIONS = frozenset(("and", "or", "not", "in", "==", "!=", "<", "<=", ">", ">=", "divides"))
"""Operators whose result is true, false or unknown."""

_WORDS = (bool, str)
"""Types of values that are equal only to values of their own type. A tuple, since ``bool | str`` is made anew where it is read."""

_DIVISOR = {"/": 1, "//": 1, "%": 1, "divides": 0}
"""Index of the operand that must not be zero."""


def scalar(expression: Expression, facts: Facts) -> Any:
    """Value of an expression: a number, True or False; None where it is unknown."""
    return _scalar(expression.tree, facts)


def truth(expression: Expression, facts: Facts, columns: Columns) -> bool | Mask:
    """Candidates for which the expression is true, not unknown: one bool where all candidates have the same result, else a mask."""
    tree = expression.tree
    evaluator = _Evaluator(facts, columns)
    variation = evaluator.variation_level(tree)
    if variation == NOTHING:
        return _scalar(tree, facts) is True
    with np.errstate(all="ignore"):
        value = evaluator.true_mask(tree)
    if not (isinstance(value, np.ndarray) and value.any()):
        return is_anywhere(value)
    return evaluator.expand_runs(value) if variation == RUN else value


def mask(expression: Expression, facts: Facts, columns: Columns) -> Mask:
    """Mask of the candidates for which the expression is true, not unknown."""
    return np.broadcast_to(np.asarray(truth(expression, facts, columns), dtype=np.bool_), (columns.rows,))


def distinguishing_values(
    expressions: Iterable[Expression], facts: Facts, columns: Columns, others: frozenset[str]
) -> list[NDArray[Any]]:
    """Columns of values that determine the results of the expressions, given the columns ``others`` of another table.

    Each is the value of a largest part of an expression that depends on this table and on none of ``others``. Rows with equal
    values in all columns get equal results for any values of ``others``.
    """
    evaluator = _Evaluator(facts, columns)
    known_parts = (part for each in expressions for part in _parts_without(each.tree, others))
    with np.errstate(all="ignore"):
        values = [evaluator.distinguishing_value(part) for part in known_parts if evaluator.variation_level(part)]
    return [value for value in values if isinstance(value, np.ndarray)]


def _parts_without(node: Node, others: frozenset[str]) -> Iterator[Node]:
    """The largest parts of an expression without these names."""
    if others.isdisjoint(node.names):
        yield node
    elif isinstance(node, Operation):
        for part in node.operands:
            yield from _parts_without(part, others)


def _scalar(node: Node, facts: Facts) -> Any:
    if isinstance(node, Reference):
        value = facts.get(node.name)
        return value if value == value else None  # NaN alone differs from itself
    if isinstance(node, Literal):
        return node.value
    assert isinstance(node, Operation)
    return _operation(node, facts)


def _operation(node: Operation, facts: Facts) -> Any:
    operator, operands = node.operator, node.operands
    if operator == "and" or operator == "or":
        return _kleene_logic(node, facts)
    value = _scalar(operands[0], facts)
    if value is None:
        return None
    if operator == "not":
        return not value
    if operator == "in":
        return _is_in(value, operands[1])
    return _apply(operator, [value, *[_scalar(part, facts) for part in operands[1:]]])


def _kleene_logic(node: Operation, facts: Facts) -> bool | None:
    """``or`` and ``and`` in Kleene's logic, with short-circuit evaluation."""
    decider = node.operator == "or"
    result: bool | None = not decider
    for part in node.operands:
        value = _scalar(part, facts)
        if value is decider:
            result = decider
            break
        if value is None:
            result = None
    return result


def _is_in(value: Any, choice: Node) -> bool:
    assert isinstance(choice, Choice)
    return any(_equal(value, item.value) for item in choice.items)


def _equal(left: Any, right: Any) -> bool:
    """Equality: numbers by value; bool and text only with their own type."""
    return same_choice(left, right) if isinstance(left, _WORDS) or isinstance(right, _WORDS) else bool(left == right)


def _apply(operator: str, values: list[Any]) -> Any:
    if None in values:
        return None
    if operator in ("==", "!="):
        return _equal(*values) == (operator == "==")
    try:
        value = _SCALAR[operator](*values)
    except (ZeroDivisionError, OverflowError, ValueError):
        return None
    return value if value == value else None


def _fold(function: Callable[[Any, Any], Any], values: tuple[Any, ...]) -> Any:
    result = values[0]
    for value in values[1:]:
        result = function(result, value)
    return result


NOTHING, RUN, ROW = range(3)
"""Granularity of a value: the same for all rows, one value per run, or one per row."""


class _Evaluator:
    """Evaluates one expression over one table.

    A condition is a pair (true, false) of bools or masks; where both are false it is unknown.

    Each node is evaluated at the coarsest level that its names allow (NOTHING, RUN, ROW), and expanded where its parent is finer.
    """

    def __init__(self, facts: Facts, columns: Columns) -> None:
        self.facts, self.columns = facts, columns
        self.run_names, self.row_names = columns.run_names, columns.row_names

    def variation_level(self, node: Node) -> int:
        """Granularity of the node's value."""
        if not self.row_names.isdisjoint(node.names):
            return ROW
        return NOTHING if self.run_names.isdisjoint(node.names) else RUN

    def expand_runs(self, value: Any) -> Any:
        """Expands a value per run to one per row."""
        rows = self.columns.run_rows
        return np.repeat(value, rows) if isinstance(value, np.ndarray) and rows is not None else value

    def aligned(self, node: Node, part: Node, value: Any) -> Any:
        """Value of an operand, expanded to the level of its operation."""
        return self.expand_runs(value) if self.variation_level(node) == ROW and self.variation_level(part) == RUN else value

    def distinguishing_value(self, node: Node) -> Any:
        """The value of a number; of a condition whether it is true, false or unknown, as one number."""
        if isinstance(node, Operation) and node.operator in _CONDITIONS:
            is_true, is_false = self.masks(node)
            return np.subtract(is_true, is_false, dtype=np.int8)
        return self.numeric_value(node)

    def masks(self, node: Node) -> tuple[Any, Any]:
        if not self.variation_level(node):
            value = _scalar(node, self.facts)
            return value is True, value is False
        if isinstance(node, Reference):
            values = self.column(node.name)
            return values, ~values
        assert isinstance(node, Operation)
        if node.operator in ("and", "or"):
            return self.and_or_masks(node)
        if node.operator == "not":
            is_true, is_false = self.masks(node.operands[0])
            return is_false, is_true
        return self.comparison_masks(node)

    def true_mask(self, node: Node) -> Any:
        """Where the whole expression is true. Operands of ``and`` are evaluated from coarse to fine, until nothing is true."""
        if not (isinstance(node, Operation) and node.operator == "and" and self.variation_level(node)):
            return self.masks(node)[0]
        is_true: Any = True
        level = NOTHING
        for part in sorted(node.operands, key=self.variation_level):
            part_is_true = self.true_mask(part)
            if self.variation_level(part) == ROW and level == RUN:
                is_true = self.expand_runs(is_true)
            level = self.variation_level(part)
            is_true = is_true & part_is_true
            if not is_anywhere(is_true):
                return False
        return is_true

    def and_or_masks(self, node: Operation) -> tuple[Any, Any]:
        """``and`` and ``or``: coarse operands first, because they are cheap and may determine the result."""
        is_or = node.operator == "or"
        is_true, is_false = (False, True) if is_or else (True, False)
        level = NOTHING
        for part in sorted(node.operands, key=self.variation_level):
            part_is_true, part_is_false = self.masks(part)
            if self.variation_level(part) == ROW and level == RUN:
                is_true, is_false = self.expand_runs(is_true), self.expand_runs(is_false)
            level = self.variation_level(part)
            is_true, is_false = (
                (is_true | part_is_true, is_false & part_is_false) if is_or else (is_true & part_is_true, is_false | part_is_false)
            )
            if _all(is_true if is_or else is_false):
                is_true, is_false = is_or, not is_or
                break
        return is_true, is_false

    def comparison_masks(self, node: Operation) -> tuple[Any, Any]:
        left, right = node.operands[0], node.operands[-1]
        coded = next((part for part in (left, right) if isinstance(part, Reference) and self.is_coded(part)), None)
        if coded is not None:
            result = self.compare_codes(coded, right if coded is left else left)
            return (result, ~result) if node.operator != "!=" else (~result, result)
        operands = [self.aligned(node, part, self.numeric_value(part)) for part in node.operands if not isinstance(part, Choice)]
        if any(value is None for value in operands):
            return False, False
        if isinstance(right, Choice):
            result = _fold(np.logical_or, tuple(operands[0] == item.value for item in right.items))
        else:
            result = self.apply_operator(node.operator, operands)
        unknown = _fold(np.logical_or, tuple(np.isnan(value) for value in operands if _is_float(value)) or (False,))
        return (result & ~unknown, ~result & ~unknown) if is_anywhere(unknown) else (result, ~result)

    def is_coded(self, node: Reference) -> bool:
        name, columns = node.name, self.columns
        return name in columns.categories and name in columns.values and columns.values[name].dtype != np.bool_

    def compare_codes(self, coded: Reference, other: Node) -> Any:
        items = other.items if isinstance(other, Choice) else (other,)
        values, choices = self.raw_column(coded.name), self.columns.categories[coded.name]
        listed_values = [item.value for item in items if isinstance(item, Literal)]
        codes = [code for code, choice in enumerate(choices) if any(same_choice(choice, value) for value in listed_values)]
        return _fold(np.logical_or, tuple(values == code for code in codes) or (np.zeros(len(values), dtype=np.bool_),))

    def numeric_value(self, node: Node) -> Any:
        """Numeric value of a node: a scalar, None if unknown, or a column."""
        if not self.variation_level(node):
            value = _scalar(node, self.facts)
            return float(value) if isinstance(value, int) and abs(value) > 2**31 else value
        if isinstance(node, Reference):
            return self.column(node.name)
        assert isinstance(node, Operation)
        operands = [self.aligned(node, part, self.numeric_value(part)) for part in node.operands]
        return None if any(value is None for value in operands) else self.apply_operator(node.operator, operands)

    def raw_column(self, name: str) -> Any:
        values = self.columns.runs.get(name)
        return self.columns.values[name] if values is None else values

    def column(self, name: str) -> Any:
        values = self.raw_column(name)
        if name in self.columns.categories and values.dtype != np.bool_:
            return np.array([choice is True for choice in self.columns.categories[name]])[values]
        return values

    def apply_operator(self, operator: str, operands: list[Any]) -> Any:
        """Result of the operator on columns. Zero divisors are replaced in ``operands`` by NaN, which means unknown."""
        divisor = _DIVISOR.get(operator)
        if divisor is not None and is_anywhere(zero := np.equal(operands[divisor], 0)):
            operands[divisor] = np.where(zero, np.nan, operands[divisor])
        return _COLUMN[operator](*operands)


def is_anywhere(value: Any) -> bool:
    """Whether a bool or mask is true anywhere: ``numpy.any`` without its overhead, which exceeds the time of short masks."""
    return value if isinstance(value, bool) else bool(value.any())


def _all(value: Any) -> bool:
    return value if isinstance(value, bool) else bool(value.all())


def _is_float(value: Any) -> bool:
    """Whether it may be NaN."""
    return value.dtype.kind == "f" if isinstance(value, np.ndarray) else isinstance(value, float)
