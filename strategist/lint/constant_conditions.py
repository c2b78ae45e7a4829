"""Finds conditions with the same value for every request and candidate, which are mistakes."""

from strategist.expr.check import Expression
from strategist.expr.evaluate import scalar
from strategist.expr.parse import Node, Operation
from strategist.lint.satisfiability import COMPARISONS, term_domains


def constant_part(expression: Expression) -> tuple[int, bool] | None:
    """Column and value of a part of a condition that cannot vary; None without one."""
    if not expression.names:
        return 0, scalar(expression, {}) is True
    return _constant_in(expression.tree)


def _constant_in(node: Node) -> tuple[int, bool] | None:
    if not isinstance(node, Operation):
        return None
    if node.operator in COMPARISONS:
        _, true, false = term_domains(node)
        if true.empty or false.empty:
            return node.column, false.empty
    return next((found for found in map(_constant_in, node.operands) if found is not None), None)
