"""Conditions that are the same for every request and candidate: they were meant otherwise."""

from strategist.expr.check import Expression
from strategist.expr.evaluate import scalar
from strategist.expr.parse import Choice, Literal, Node, Operation, Reference
from strategist.expr.vocabulary import VOCABULARY

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


def constant_part(expression: Expression) -> tuple[int, bool] | None:
    """The column and value of a part that cannot vary; None where there is none."""
    if not expression.names:
        return 0, scalar(expression, {}) is True
    return _constant_in(expression.tree)


def _constant_in(node: Node) -> tuple[int, bool] | None:
    if not isinstance(node, Operation):
        return None
    value = _comparison(node)
    if value is not None:
        return node.column, value
    return next((found for found in map(_constant_in, node.operands) if found is not None), None)


def _comparison(node: Operation) -> bool | None:
    """The value of a comparison that is decided by what its name can be at all."""
    if node.operator == "in":
        left, right = node.operands
        return _covers(left, [item.value for item in right.items]) if isinstance(right, Choice) else None
    if node.operator not in _MIRRORED:
        return None
    left, right = node.operands
    if left == right or (isinstance(left, Reference) and isinstance(right, Reference) and left.name == right.name):
        return node.operator in ("==", "<=", ">=")
    if isinstance(left, Reference) and isinstance(right, Literal):
        return _against_bounds(left, node.operator, right)
    if isinstance(left, Literal) and isinstance(right, Reference):
        return _against_bounds(right, _MIRRORED[node.operator], left)
    return None


def _covers(node: Node, values: list[float | int | bool | str]) -> bool | None:
    choices = VOCABULARY[node.name].choices if isinstance(node, Reference) else ()
    return True if choices and set(choices) <= set(values) else None


def _against_bounds(name: Reference, operator: str, literal: Literal) -> bool | None:
    entry, value = VOCABULARY[name.name], literal.value
    if isinstance(value, bool | str):
        return None
    below = entry.low is not None and value < entry.low
    above = entry.high is not None and value > entry.high
    at_low, at_high = value == entry.low, value == entry.high
    always = {">": below, ">=": below or at_low, "<": above, "<=": above or at_high, "==": False, "!=": below or above}
    never = {">": above or at_high, ">=": above, "<": below or at_low, "<=": below, "==": below or above, "!=": False}
    return True if always[operator] else False if never[operator] else None
