"""The documented operators and functions are those of the parser."""

from collections.abc import Iterator

import pytest

from strategist.expr.check import condition
from strategist.expr.operator_docs import OPERATOR_DOCS
from strategist.expr.parse import _OPERATORS, FUNCTIONS, Node, Operation


def operators(node: Node) -> Iterator[str]:
    if isinstance(node, Operation):
        yield node.operator
        for part in node.operands:
            yield from operators(part)


def test_every_operator_and_function_has_a_meaning() -> None:
    assert set(OPERATOR_DOCS) == {*_OPERATORS.values(), *FUNCTIONS}


@pytest.mark.parametrize("name", OPERATOR_DOCS)
def test_an_example_uses_its_operator_or_function(name: str) -> None:
    found = set(operators(condition(OPERATOR_DOCS[name][0]).tree))
    assert (set(name.split()) if name == "not in" else {name}) <= found
