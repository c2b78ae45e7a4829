"""Expressions take a bounded number of steps, and agree with an independent evaluator written from the reference."""

import gc
import random
import time
from collections.abc import Iterator

import pytest
from chaos import Chaos

from expr import reference
from strategist.expr.check import condition
from strategist.expr.evaluate import scalar
from strategist.expr.parse import MAX_LENGTH, MAX_STEPS, Choice, ExpressionError, Node, Operation
from strategist.expr.vocabulary import VOCABULARY


def parts(node: Node) -> int:
    """Number of nodes that are evaluated."""
    if isinstance(node, Operation):
        return 1 + sum(map(parts, node.operands))
    return len(node.items) if isinstance(node, Choice) else 1


def alike(left: object, right: object) -> bool:
    return left == right and isinstance(left, bool) is isinstance(right, bool)


@pytest.fixture
def frozen_garbage() -> Iterator[None]:
    """Objects of other tests are not collected during a measurement."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("frozen_garbage")
@pytest.mark.chaos("Bad input", "generated expressions have the value of an independent evaluator, written from their reference")
def test_generated_expressions_equal_the_independent_evaluator(chaos: Chaos) -> None:
    chances, count = chaos.random(), chaos.size(1_000, 50_000)
    tried, unknown, differing, slowest = 0, 0, list[str](), 0.0
    while tried < count:
        text = reference.condition(chances, 3)
        if len(text) > MAX_LENGTH:
            continue
        facts = reference.facts(chances)
        begun = time.process_time()
        expression = condition(text)
        found = scalar(expression, facts)
        slowest = max(slowest, time.process_time() - begun)
        tried += 1
        unknown += found is None
        assert parts(expression.tree) == expression.tree.steps <= MAX_STEPS
        if not alike(found, reference.reference_value(text, facts)):
            differing.append(f"{text}: {found}, {reference.meaning(text, facts)}")
    assert differing == []
    assert 0 < unknown < tried
    chaos.found(f"{tried:,} expressions, {unknown:,} of them unknown: {len(differing)} differ")
    chaos.found(f"slowest {slowest * 1000:.1f} ms of CPU (50 allowed)")


def chained(levels: int) -> str:
    """A chained comparison evaluates its middle twice, so the cost doubles at each level."""
    text = "true"
    for _ in range(levels):
        text = f"true==({text})==true"
    return text


def hostile(chances: random.Random) -> str:
    """A hostile expression: long, deeply nested, or with access to Python's internals."""
    number = chances.randrange(1, 400)
    name = chances.choice(list(VOCABULARY))
    return chances.choice(
        [
            chained(chances.randrange(1, 32)), "(" * number + "1" + ")" * number, "-" * number + "1 > 0", "not " * number + "true",
            "**".join("9" * number), f"{'9' * number} > 1", f"1e{number} * 1e{number} > {name}", f"{'1e30*' * number}1 > 1",
            f"{name} in [{', '.join(['1'] * number)}]", f"'{'x' * number}' == 'x'", "1 < " * number + "2",
            f"{name}{'.x' * number} > 1", f"f'{{{name}}}'",
            f"min({', '.join([name] * number)}) > 1", f"max({'min(1, ' * number}1{')' * number}) > 0", "[" * number, "{" * number,
            f"__import__('os').system('{name}')", f"(lambda: {name})()", f"[x for x in {name}]", f"{name}.__class__",
            f"({name} := 1) > 0", "1 if true else " * number + "2", f"{name}[{number}]", f"`{name}`", f"{name}\x00", "\ud800 > 1",
            f"{name} > {chr(number)}", "1 // 0 > 1 and " * number + "true", f"{name} % 0 == 0", f"pow({number}, {number}) > 1",
            f"{name} == {name} == " * number + name, f"exec({name!r})", "import os", f"{name};{name}", f"# {name}", "\\" * number,
            "".join(chances.choice("()[]{}<>=!+-*/%,.'\" 019eGBs\n\t") for _ in range(number)), f"await {name}", f"*{name}",
        ]
    )  # fmt: skip


@pytest.mark.chaos("Bad input", "hostile expressions are refused, or evaluated in a bounded number of steps")
def test_hostile_expressions_are_refused_or_bounded(chaos: Chaos) -> None:
    chances, count = chaos.random(), chaos.size(200, 10_000)
    accepted, slowest, most, untyped = 0, 0.0, 0, list[str]()
    for _ in range(count):
        text = hostile(chances)
        begun = time.process_time()
        try:
            expression = condition(text)
            scalar(expression, reference.facts(chances))
            most = max(most, parts(expression.tree))
            accepted += 1
        except ExpressionError:
            pass
        except Exception as error:
            untyped.append(f"{error!r} of {text!r}")
        slowest = max(slowest, time.process_time() - begun)
    assert untyped == []
    assert 0 < accepted < count
    assert most <= MAX_STEPS
    chaos.found(f"{count:,} expressions, {accepted:,} accepted: {len(untyped)} errors without a type, at most {most} steps")
    chaos.found(f"slowest {slowest * 1000:.1f} ms of CPU (50 allowed)")


def test_nested_chained_comparisons_are_refused() -> None:
    with pytest.raises(ExpressionError, match="takes more than 500 steps: write comparisons without chains, joined by and"):
        condition(chained(25))
