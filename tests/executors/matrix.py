"""The tables of docs/engines.md, engines and jobs, from tests."""

import ast
from collections.abc import Iterator
from pathlib import Path

from docs.parts import with_parts
from launch import matrix as jobs

from strategist.cli.engine_options import ENGINES

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "engines.md"
HOSTS = "torchrun --hosts"
NAMES = (ENGINES[0], HOSTS, *ENGINES[1:])


def matrix() -> str:
    """One row per engine: the names of the tests that are marked with it."""
    sentences_of: dict[str, list[str]] = {name: [] for name in NAMES}
    for engine, sentence in _marked():
        sentences_of[engine].append(sentence)
    rows = ["| engine | tested |", "|---|---|"]
    rows += [f"| `{name}` | {'; '.join(names)} |" for name, names in sentences_of.items()]
    return "\n".join(rows)


def _marked() -> Iterator[tuple[str, str]]:
    """Engines, each with a test's name as a sentence."""
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                sentence = node.name.removeprefix("test_").replace("_", " ")
                yield from ((engine, sentence) for engine in _engines(node))


def _engines(test: ast.FunctionDef) -> Iterator[str]:
    for mark in test.decorator_list:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.engine":
            yield from (ast.literal_eval(name) for name in mark.args)


def page(text: str) -> str:
    """The page with updated tables."""
    return with_parts(text, {"matrix": matrix(), "jobs": jobs.matrix()})
