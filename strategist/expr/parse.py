"""Parser of expressions: Python syntax restricted to an allow-list of nodes, with unit literals such as ``25 GB/s``."""

import ast
import re
from collections.abc import Callable, Collection
from functools import cached_property
from typing import Any

from strategist.errors import StrategistError
from strategist.expr.vocabulary import UNITS, Dimension, near_miss
from strategist.frozen import frozen
from strategist.units import BYTES, FLOPS, RATES, SECONDS

MAX_LENGTH, MAX_DEPTH = 500, 40
MAX_STEPS = 500
"""Limit on the number of evaluated nodes.

Only nested chains of comparisons reach it, because an operand between two comparisons is evaluated for both.
"""

LITERAL_UNITS: dict[str, tuple[float, Dimension]] = {
    **{unit: (size, UNITS["bytes"]) for unit, size in BYTES.items()},
    **{unit: (size, UNITS["bytes/s"]) for unit, size in RATES.items()},
    **{unit: (size, UNITS["seconds"]) for unit, size in SECONDS.items()},
    **{unit: (size, UNITS["flop/s"]) for unit, size in FLOPS.items()},
}
"""Units that may follow a number, with size and dimension. Memory is in GiB or GB (decimal), rates are decimal."""

FUNCTIONS = {"min": (2, 8), "max": (2, 8), "ceil": (1, 1), "floor": (1, 1), "abs": (1, 1), "sqrt": (1, 1), "divides": (2, 2)}
"""Functions with their smallest and largest number of arguments; ``divides(a, b)``: b is a multiple of a."""


class ExpressionError(StrategistError):
    """An invalid expression. ``column`` counts from 0; ``kind`` is syntax, name, type, unit or bare (a number without its unit).

    ``unknown_word`` is the misspelt word and ``known`` the words allowed in its place; both are empty for other errors.
    """

    def __init__(
        self, message: str, column: int, kind: str = "syntax", unknown_word: str = "", known: Collection[str] = ()
    ) -> None:
        super().__init__(message)
        self.message, self.column, self.kind, self.unknown_word, self.known = message, column, kind, unknown_word, known


@frozen
class Node:
    """Node of an expression; ``column`` is its start in the text, from 0."""

    column: int

    @cached_property
    def steps(self) -> int:
        """Largest number of nodes evaluated for this node."""
        return 1

    @cached_property
    def names(self) -> frozenset[str]:
        """The names that the expression uses."""
        return frozenset()


@frozen
class Literal(Node):
    """A number with its dimension, true, false or quoted text."""

    value: float | int | bool | str
    dimension: Dimension = UNITS["none"]


@frozen
class Reference(Node):
    """A vocabulary name."""

    name: str

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset((self.name,))


@frozen
class Choice(Node):
    """List of literals on the right of ``in``."""

    items: tuple[Literal, ...]

    @cached_property
    def steps(self) -> int:
        return len(self.items)


@frozen
class Operation(Node):
    """An operator or function over its operands: ``and or not neg + - * / // % == != < <= > >= in`` or one of FUNCTIONS."""

    operator: str
    operands: tuple[Node, ...]

    @cached_property
    def steps(self) -> int:
        return 1 + sum(part.steps for part in self.operands)

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset().union(*(part.names for part in self.operands))


_OPERATORS: dict[type[ast.AST], str] = {
    ast.And: "and", ast.Or: "or", ast.Not: "not", ast.USub: "neg",
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
_TOKEN = re.compile(
    r"""(?P<text>'[^'\\]*'|"[^"\\]*")|(?P<word>[A-Za-z_][A-Za-z_0-9.]*)"""
    r"""|(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)(?P<gap>\ *)(?P<unit>[A-Za-z_][A-Za-z_0-9]*(?:/[A-Za-z]+)?)?"""
    r"""|(?P<mark>[-+*/%()\[\],\ ]|[<>=!]=|[<>])"""
)
_WORDS = {"and", "or", "not", "in"}
_CONSTANTS = {"true": True, "True": True, "false": False, "False": False}


def parse(text: str) -> Node:
    """Tree of an expression; names, types and units are not checked yet.

    Raises:
        ExpressionError: not in the language, or beyond its limits.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"an expression has at most {MAX_LENGTH} characters, not {len(text)}", 0)
    text_without_units, units = _take_units(text.replace("\n", " "))
    start = len(text_without_units) - len(text_without_units.lstrip())
    try:
        body = ast.parse(text_without_units.strip(), mode="eval").body
    except SyntaxError as error:
        raise ExpressionError(f"not an expression: {error.msg}", start + max((error.offset or 1) - 1, 0)) from None
    except (ValueError, RecursionError, MemoryError):
        raise ExpressionError("not an expression: nested too deeply; write it flatter", 0) from None
    tree = _Builder(units, start).build(body, 0)
    if tree.steps > MAX_STEPS:
        raise ExpressionError(f"takes more than {MAX_STEPS} steps: write comparisons without chains, joined by and", tree.column)
    return tree


def _take_units(text: str) -> tuple[str, dict[int, tuple[float, Dimension]]]:
    """The text with each unit replaced by blanks of equal length, which keeps columns, and the units by column of their number."""
    tokens, units, column = [], {}, 0
    while column < len(text):
        match = _TOKEN.match(text, column)
        if match is None:
            raise ExpressionError(f"{text[column]!r} has no meaning here; leave it out", column)
        token, unit = match.group(), match["unit"]
        if unit in _WORDS and match["gap"]:
            token = token[: -len(unit)]
        elif unit is not None:
            if unit not in LITERAL_UNITS:
                raise ExpressionError(f"unknown unit {unit}{near_miss(unit, LITERAL_UNITS)}", match.start("unit"))
            units[column] = LITERAL_UNITS[unit]
            tokens.append(match["number"] + " " * (len(token) - len(match["number"])))
        if unit is None or token != match.group():
            tokens.append(token)
        column += len(token)
    return "".join(tokens), units


class _Builder:
    """Converts Python's syntax tree into expression nodes; only allowed nodes pass."""

    def __init__(self, units: dict[int, tuple[float, Dimension]], start: int) -> None:
        self.units, self.start = units, start
        self.builders: dict[type[ast.AST], Callable[[Any, int, int], Node]] = {
            ast.Constant: self.constant, ast.Name: self.name, ast.Attribute: self.attribute, ast.BoolOp: self.bool_op,
            ast.UnaryOp: self.unary, ast.BinOp: self.binary, ast.Compare: self.compare, ast.Call: self.call,
        }  # fmt: skip

    def build(self, node: ast.expr, depth: int) -> Node:
        column = self.start + node.col_offset
        if depth > MAX_DEPTH:
            raise ExpressionError(f"nested deeper than {MAX_DEPTH} levels; write it flatter", column)
        builder = self.builders.get(type(node))
        if builder is None:
            raise ExpressionError(f"{type(node).__name__.lower()} is not part of the language; leave it out", column)
        return builder(node, column, depth)

    def constant(self, node: ast.Constant, column: int, depth: int) -> Node:
        value = node.value
        if isinstance(value, str):
            return Literal(column=column, value=value)
        if not isinstance(value, int | float) or abs(value) > 1e30:
            raise ExpressionError(f"{str(value)[:20]} is not a value of the language; write another", column)
        if isinstance(value, bool) or column not in self.units:
            return Literal(column=column, value=value)
        size, dimension = self.units[column]
        return Literal(column=column, value=value * size, dimension=dimension)

    def name(self, node: ast.Name, column: int, depth: int) -> Node:
        if node.id in _CONSTANTS:
            return Literal(column=column, value=_CONSTANTS[node.id])
        return Reference(column=column, name=node.id)

    def attribute(self, node: ast.Attribute, column: int, depth: int) -> Node:
        if not isinstance(node.value, ast.Name):
            raise ExpressionError("a name has two parts; write it as layout.tp is written", column)
        return Reference(column=column, name=f"{node.value.id}.{node.attr}")

    def bool_op(self, node: ast.BoolOp, column: int, depth: int) -> Node:
        operands = tuple(self.build(operand, depth + 1) for operand in node.values)
        return Operation(column=column, operator=_OPERATORS[type(node.op)], operands=operands)

    def unary(self, node: ast.UnaryOp, column: int, depth: int) -> Node:
        if type(node.op) not in _OPERATORS:
            raise ExpressionError("this sign is not part of the language; leave it out", column)
        operand = self.build(node.operand, depth + 1)
        return Operation(column=column, operator=_OPERATORS[type(node.op)], operands=(operand,))

    def binary(self, node: ast.BinOp, column: int, depth: int) -> Node:
        if type(node.op) not in _OPERATORS:
            raise ExpressionError(f"operator {type(node.op).__name__.lower()} is not part of the language; leave it out", column)
        operands = (self.build(node.left, depth + 1), self.build(node.right, depth + 1))
        return Operation(column=column, operator=_OPERATORS[type(node.op)], operands=operands)

    def compare(self, node: ast.Compare, column: int, depth: int) -> Node:
        left, parts = self.build(node.left, depth + 1), []
        for operator, right in zip(node.ops, node.comparators, strict=True):
            part, left = self.comparison(operator, left, right, depth)
            parts.append(part)
        return parts[0] if len(parts) == 1 else Operation(column=column, operator="and", operands=tuple(parts))

    def comparison(self, operator: ast.cmpop, left: Node, right: ast.expr, depth: int) -> tuple[Operation, Node]:
        sign = _OPERATORS.get(type(operator))
        if sign is None:
            raise ExpressionError("compare with == != < <= > >= in, not with is", left.column)
        if sign not in ("in", "not in"):
            other = self.build(right, depth + 1)
            return Operation(column=left.column, operator=sign, operands=(left, other)), other
        choice = self.choice(right, depth)
        membership = Operation(column=left.column, operator="in", operands=(left, choice))
        return membership if sign == "in" else Operation(column=left.column, operator="not", operands=(membership,)), choice

    def choice(self, node: ast.expr, depth: int) -> Choice:
        if not isinstance(node, ast.List | ast.Tuple):
            raise ExpressionError("a list of values is needed after in, such as [1, 2]", self.start + node.col_offset)
        items = [self.build(item, depth + 1) for item in node.elts]
        for item in items:
            if not isinstance(item, Literal):
                raise ExpressionError("a list holds plain values only; write one", item.column)
        return Choice(column=self.start + node.col_offset, items=tuple(item for item in items if isinstance(item, Literal)))

    def call(self, node: ast.Call, column: int, depth: int) -> Node:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in FUNCTIONS:
            raise ExpressionError(f"the functions are {', '.join(FUNCTIONS)}{near_miss(name, FUNCTIONS)}", column)
        min_arguments, max_arguments = FUNCTIONS[name]
        if node.keywords or not min_arguments <= len(node.args) <= max_arguments:
            count = str(min_arguments) if min_arguments == max_arguments else f"{min_arguments} to {max_arguments}"
            raise ExpressionError(f"{name} takes {count} values; give as many", column)
        return Operation(column=column, operator=name, operands=tuple(self.build(part, depth + 1) for part in node.args))
