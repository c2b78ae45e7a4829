"""Pages of the Python interface: examples run, every function is documented, and the import is cheap."""

import doctest
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import strategist
from docs.interface import pages
from docs.pages import ROOT, blocks
from strategist import api

PAGE = "docs/api.md"


def test_every_name_and_function_is_on_the_page() -> None:
    [text] = pages().values()
    functions = [name for name in api.__all__ if inspect.isfunction(inspect.unwrap(getattr(api, name)))]
    assert [name for name in functions if text.count(f"\n### {name}\n") != 1] == []
    assert [name for name in strategist.__all__ if text.count(f"\n- `strategist.{name}`: ") != 1] == []


@pytest.mark.torch
@pytest.mark.timeout(180)
@pytest.mark.full
def test_the_examples_of_the_page_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = "\n".join(blocks(PAGE, "python"))
    assert lines.count(">>>") > 20
    example = doctest.DocTestParser().get_doctest(lines, {}, PAGE, str(ROOT / PAGE), 0)
    failures: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL).run(example, out=failures.append)
    assert failures == []


def test_every_exported_name_exists_and_has_a_docstring() -> None:
    assert set(dir(strategist)) == set(strategist.__all__)
    assert [name for name in strategist.__all__ if not getattr(strategist, name).__doc__] == []


@pytest.mark.parametrize(
    ("program", "absent"),
    [
        ("import strategist", {"strategist.api", "numpy", "yaml", "rich"}),
        ("from strategist import Request", {"strategist.api", "numpy", "yaml", "rich"}),
        ("from strategist import plan, study", {"torch", "optuna", "pandas", "scipy", "sqlalchemy"}),
    ],
)
def test_an_imported_name_loads_only_what_is_needed(program: str, absent: set[str]) -> None:
    script = f"import sys\n{program}\nprint(*sorted({absent} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "\n"
