"""Examples in docstrings of the API run and print what they show."""

import doctest
import importlib
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


def test_exported_functions_have_examples() -> None:
    have = {example.name.rpartition(".")[2] for example in EXAMPLES}
    assert {"strategist", "plan", "run", "tune", "study", "explain", "compare", "why_not", "price"} <= have
