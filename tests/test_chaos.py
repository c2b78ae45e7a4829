"""The chaos plugin: sizes, seeds, and the page of reliability."""

import ast
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import chaos as plugin
import pytest

ROOT = Path(__file__).parents[1]
TESTS = """
import pytest

@pytest.mark.chaos("Trials", "numbers")
def test_numbers(chaos):
    chaos.found(f"{chaos.size(1, 100)} tried")
    chaos.found("0 lost")

@pytest.mark.weekly
@pytest.mark.chaos("The store", "long ones")
@pytest.mark.parametrize("kind", ["a", "b"])
def test_long(chaos, kind):
    chaos.found("0 left" if chaos.random().random() < 2 else "some")
    assert kind == "a", "b | is lost"

@pytest.mark.chaos("Security", "left out")
def test_skipped(chaos):
    pytest.skip("no server")
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs pytest with only this plugin on the sample tests."""
    (folder / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "chaos", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def rows(folder: Path) -> dict[str, tuple[str, str]]:
    found = plugin.read(folder / "page.md")
    return {row.test: (section, row.found) for section, table in found.items() for row in table.values()}


@pytest.fixture(scope="module")
def weekly(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a weekly run of all sample tests, with its page, and what the run printed."""
    folder = tmp_path_factory.mktemp("weekly")
    return folder, run_pytest(folder, "--weekly", "--seed", "7", "--figures", "page.md").stdout


def test_a_run_writes_its_figures_to_the_page(weekly: tuple[Path, str]) -> None:
    folder, _ = weekly
    assert rows(folder) == {
        "test_it.py::test_long[a]": ("The store", "0 left"),
        "test_it.py::test_long[b]": ("The store", "**FAILED**: AssertionError: b / is lost assert 'b' == 'a' - a + b"),
        "test_it.py::test_numbers": ("Trials", "100 tried; 0 lost"),
    }
    assert "| long ones (a) | 0 left |" in (folder / "page.md").read_text()
    assert "| 7 | `test_it.py::test_numbers` |" in (folder / "page.md").read_text()


def test_rows_of_other_tests_are_kept(weekly: tuple[Path, str], tmp_path: Path) -> None:
    shutil.copy(weekly[0] / "page.md", tmp_path)
    run_pytest(tmp_path, "--figures", "page.md", "test_it.py::test_numbers")
    assert rows(tmp_path) == {**rows(weekly[0]), "test_it.py::test_numbers": ("Trials", "1 tried; 0 lost")}


def test_an_aborted_run_keeps_its_finished_rows(tmp_path: Path) -> None:
    (tmp_path / "test_later.py").write_text("import os\n\ndef test_end():\n    os._exit(9)\n")
    assert run_pytest(tmp_path, "--figures", "page.md", "test_it.py::test_numbers", "test_later.py").returncode == 9
    assert rows(tmp_path) == {"test_it.py::test_numbers": ("Trials", "1 tried; 0 lost")}


def test_weekly_tests_run_only_with_the_weekly_option(tmp_path: Path) -> None:
    done = run_pytest(tmp_path)
    assert done.returncode == 0
    assert "1 passed, 1 skipped, 2 deselected" in done.stdout


def test_a_failing_test_prints_its_seed(weekly: tuple[Path, str]) -> None:
    assert "seed 7\n" in weekly[1]


@pytest.mark.parametrize(
    "only",
    [
        "",
        "tests/executors/test_faulty_trials.py::test_many_trials_in_a_row_leak_nothing[runtime]",
        "tests/executors/test_runtime.py::test_a_stopped_rank_is_a_timeout",
    ],
    ids=["all", "chaos", "weekly"],
)
def test_make_chaos_finds_its_tests(only: str) -> None:
    make = ["make", "-n", "-o", ".venv/ready", "-o", "frameworks", "chaos", f"ONLY={only}", "SEED=7"]
    # Flags of an outer `make test` would print the folder.
    ours = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    program, *words = shlex.split(subprocess.run(make, cwd=ROOT, env=ours, capture_output=True, text=True, check=True).stdout)
    assert program.endswith("/pytest")
    some = ["tests/ledger" if word == "tests" else word for word in words]  # collecting all tests takes half a minute
    command = [sys.executable, "-m", "pytest", *some, "--collect-only", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = [line for line in done.stdout.splitlines() if "::" in line]
    assert done.returncode == 0, done.stdout + done.stderr
    assert found == [only] if only else len(found) > 15


@pytest.mark.skipif(not (ROOT / "docs" / "reliability.md").exists(), reason="no run has been made")
def test_each_row_of_the_page_names_an_existing_test() -> None:
    found = plugin.read(ROOT / "docs" / "reliability.md")
    tests = [row.test for table in found.values() for row in table.values()]
    assert tests
    for test in tests:
        path, name = test.split("[")[0].split("::")
        assert name in {node.name for node in ast.parse((ROOT / path).read_text()).body if isinstance(node, ast.FunctionDef)}, test
