"""An independent evaluator of the expression language, written from docs/reference/expressions.md, and random expressions."""

import ast
import math
import random
import re
from collections.abc import Callable, Mapping
from typing import Any

from strategist.contract import codec
from strategist.expr.vocabulary import BOOL, CATEGORY, INT, UNITS, VOCABULARY, Dimension

SIZES: dict[str, float] = {
    "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
    "MB/s": 10**6, "GB/s": 10**9, "TB/s": 10**12, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0,
    "GFLOPS": 1e9, "TFLOPS": 1e12,
}  # fmt: skip
"""Factors of units; those of bytes are whole numbers, which are exact in Python."""
LITERALS: dict[Dimension, tuple[str, ...]] = {
    UNITS["none"]: ("",), UNITS["bytes"]: ("B", "GB", "GiB", "MiB"), UNITS["seconds"]: ("s", "ms", "us", "min"),
    UNITS["bytes/s"]: ("MB/s", "GB/s"), UNITS["flop/s"]: ("GFLOPS", "TFLOPS"),
}  # fmt: skip
_NUMBER = re.compile(
    r"(?<![\w.])((?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?) ?(" + "|".join(sorted(SIZES, key=len, reverse=True)) + r")(?![\w/])"
)

NUMBERS = {
    dimension: [name for name, entry in VOCABULARY.items() if entry.kind not in (BOOL, CATEGORY) and UNITS[entry.unit] == dimension]
    for dimension in LITERALS
}
CONDITIONS = [name for name, entry in VOCABULARY.items() if entry.kind == BOOL]
CATEGORIES = [name for name, entry in VOCABULARY.items() if entry.kind == CATEGORY]


def reference_value(text: str, facts: Mapping[str, Any]) -> Any:
    """The value of an expression; None if unknown."""
    plain = _NUMBER.sub(lambda found: f"({found[1]} * {SIZES[found[2]]!r})", text)
    return _value(ast.parse(plain.strip(), mode="eval").body, facts)


def _value(node: ast.expr, facts: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=word):
            return word == "true"
        case ast.Attribute(value=ast.Name(id=first), attr=second):
            value = facts.get(f"{first}.{second}")
            return None if value is None or value != value else value
        case ast.UnaryOp(op=ast.Not(), operand=part):
            value = _value(part, facts)
            return None if value is None else not value
        case ast.BoolOp(op=operator, values=parts):
            return _joined([_value(part, facts) for part in parts], isinstance(operator, ast.Or))
        case ast.Compare(left=left, ops=operators, comparators=rights):
            sides = [left, *rights]
            return _joined([_compared(sides[i], sides[i + 1], operators[i], facts) for i in range(len(rights))], False)
        case ast.UnaryOp(op=ast.USub(), operand=part):
            return _known(lambda value: -value, _value(part, facts))
        case ast.BinOp(left=left, op=operator, right=right):
            return _known(ARITHMETIC[type(operator)], _value(left, facts), _value(right, facts))
        case ast.Call(func=ast.Name(id=name), args=parts):
            return _known(FUNCTIONS[name], *[_value(part, facts) for part in parts])
    raise AssertionError(ast.dump(node))


def _joined(values: list[bool | None], either: bool) -> bool | None:
    """Kleene logic: a deciding value decides; otherwise unknown if any value is unknown."""
    return either if either in values else None if None in values else not either


def _known(function: Callable[..., Any], *values: Any) -> Any:
    if None in values:
        return None
    try:
        found = function(*values)
    except (ArithmeticError, ValueError):
        return None
    return None if found != found else found


def _compared(left: ast.expr, right: ast.expr, operator: ast.cmpop, facts: Mapping[str, Any]) -> bool | None:
    value = _value(left, facts)
    if isinstance(operator, ast.In | ast.NotIn):
        assert isinstance(right, ast.List)
        among = any(_alike(value, _value(item, facts)) for item in right.elts)
        return None if value is None else among == isinstance(operator, ast.In)
    return _known(COMPARISONS[type(operator)], value, _value(right, facts))


def _alike(left: Any, right: Any) -> bool:
    """Equality; texts and booleans equal only values of their own type."""
    plain = not isinstance(left, bool | str) and not isinstance(right, bool | str)
    return left == right and (plain or type(left) is type(right))


ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b, ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b, ast.Mod: lambda a, b: a % b,
}  # fmt: skip
COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: _alike, ast.NotEq: lambda a, b: not _alike(a, b), ast.Lt: lambda a, b: a < b, ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b, ast.GtE: lambda a, b: a >= b,
}  # fmt: skip
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": lambda *all_: sorted(all_)[0], "max": lambda *all_: sorted(all_)[-1], "ceil": math.ceil, "floor": math.floor,
    "abs": lambda a: -a if a < 0 else a, "sqrt": lambda a: math.sqrt(a), "divides": lambda a, b: b % a == 0,
}  # fmt: skip


def facts(chances: random.Random) -> dict[str, Any]:
    """Values of most names; some are unknown: missing, None or NaN."""
    return {name: _fact(name, chances) for name in VOCABULARY if chances.random() < 0.9}


def _fact(name: str, chances: random.Random) -> Any:
    entry = VOCABULARY[name]
    if chances.random() < 0.1:
        return chances.choice([None, float("nan")])
    if entry.kind == BOOL:
        return chances.random() < 0.5
    if entry.kind == CATEGORY:
        return chances.choice(entry.choices)
    if entry.kind == INT:
        return chances.choice([0, 1, 2, 3, 4, 8, 12, 2**31, 10**15])
    return chances.choice([0.0, 0.25, 1.0, 3.5, 8e9, codec.MOST])


def condition(chances: random.Random, depth: int) -> str:
    """A random condition."""
    kind = chances.randrange(9 if depth else 4)
    if kind == 0:
        return chances.choice([*CONDITIONS, "true", "false"])
    if kind == 1:
        name = chances.choice(CATEGORIES)
        shown = [repr(choice).lower() if isinstance(choice, bool) else repr(choice) for choice in VOCABULARY[name].choices]
        if chances.random() < 0.5:
            return f"{name} {chances.choice(['==', '!='])} {chances.choice(shown)}"
        return f"{name} {chances.choice(['in', 'not in'])} [{', '.join(chances.sample(shown, min(2, len(shown))))}]"
    dimension = chances.choice(list(LITERALS))
    if kind == 2:
        sides = [quantity(chances, depth - 1, dimension) for _ in range(chances.choice([2, 2, 3]))]
        return "".join(f" {chances.choice(['<', '<=', '>', '>=', '==', '!='])} {side}" for side in sides)[3:].strip("= ")
    if kind == 3:
        values = ", ".join(literal(chances, dimension) for _ in range(3))
        return f"{quantity(chances, depth - 1, dimension)} {chances.choice(['in', 'not in'])} [{values}]"
    if kind == 4:
        return f"divides({quantity(chances, depth - 1, dimension)}, {quantity(chances, depth - 1, dimension)})"
    if kind == 5:
        return f"not ({condition(chances, depth - 1)})"
    if kind == 6:
        return f"({condition(chances, depth - 1)}) {chances.choice(['==', '!='])} ({condition(chances, depth - 1)})"
    return f" {chances.choice(['and', 'or'])} ".join(f"({condition(chances, depth - 1)})" for _ in range(2))


def quantity(chances: random.Random, depth: int, dimension: Dimension) -> str:
    """A random expression of a number with this dimension."""
    if depth <= 0 or chances.random() < 0.3:
        return chances.choice(NUMBERS[dimension]) if chances.random() < 0.6 else literal(chances, dimension)
    one, other = quantity(chances, depth - 1, dimension), quantity(chances, depth - 1, dimension)
    plain = quantity(chances, depth - 1, UNITS["none"])
    options = [f"({one} {sign} {other})" for sign in "+-%"] + [f"{name}({one}, {other})" for name in ("min", "max")]
    options += [f"({one} {sign} {plain})" for sign in ("*", "/", "//")] + [
        f"(-{one})",
        f"abs({one})",
        f"ceil({one})",
        f"floor({one})",
    ]
    options += [f"({one} / {other} * {literal(chances, dimension)})", f"sqrt({one} * {other})"]
    return chances.choice(options)


def literal(chances: random.Random, dimension: Dimension) -> str:
    unit = chances.choice(LITERALS[dimension])
    return f"{chances.choice(['0', '1', '2', '3', '24', '0.5', '1e3', '1.5', '2.'])} {unit}".strip()
