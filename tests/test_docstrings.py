"""Examples in docstrings of the API run and print what they show; docstrings of classes describe fields that exist."""

import ast
import doctest
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import strategist

FOLDER = Path(strategist.__file__).parent
MODULES = ["strategist", "strategist.api", *(f"strategist.api.{path.stem}" for path in sorted(FOLDER.glob("api/[a-z]*.py")))]
FINDER = doctest.DocTestFinder(exclude_empty=True)
RANKS = {"strategist.api.runs.run", "strategist.api.studies.tune"}
EXAMPLES = [found for name in MODULES for found in FINDER.find(importlib.import_module(name)) if found.examples]


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "example",
    [
        pytest.param(found, id=found.name, marks=[pytest.mark.torch, pytest.mark.full] if found.name in RANKS else [])
        for found in EXAMPLES
    ],
)
def test_an_example_prints_what_it_shows(example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failures: list[str] = []
    doctest.DocTestRunner().run(example, out=failures.append)
    assert failures == []


DESCRIBED = re.compile(r"^([a-z_]+(?:, [a-z_]+)*): ", re.MULTILINE)


def _members(node: ast.ClassDef) -> Iterator[str]:
    """Fields, methods, attributes and parameters of a class."""
    for item in ast.walk(node):
        match item:
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.FunctionDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                yield name


def test_docstrings_of_classes_describe_fields_that_exist() -> None:
    wrong = [
        f"{path.name} {node.name}: {name}"
        for folder in (FOLDER, FOLDER.parent / "runtime")
        for path in sorted(folder.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        for names in DESCRIBED.findall(ast.get_docstring(node) or "")
        for name in names.split(", ")
        if name not in set(_members(node))
    ]
    assert wrong == []


def test_exported_functions_have_examples() -> None:
    have = {example.name.rpartition(".")[2] for example in EXAMPLES}
    assert {"strategist", "plan", "run", "tune", "study", "explain", "compare", "why_not", "price"} <= have
