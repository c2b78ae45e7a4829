"""Mutation testing: how faults are drawn, and how results are stored."""

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]


def benchmark(name: str) -> ModuleType:
    """Loads a module of benchmarks/ by path, since module names there equal those of test folders."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


faults, checkout, mutation = map(benchmark, ("faults", "checkout", "mutation"))

SOURCE = '''"""Text with 1 < 2."""
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from a import b

@cached(size=1)
def taken(é: Small[1], last: int = 1, *, by: bool = False) -> Small[1]:
    assert last < 3
    here: Small[2] = values[(1)]  # é < é
    if (é + last) * 3 <= here and last is not None or not by:
        raise ValueError("no") from None
    raise OSError(
        f"{last < 2}", 700
    )

class Small:
    def __repr__(self) -> str:
        return str(self.size + 1)

    def reduced(self) -> float:
        return self.sum(dim=-1) - (self.size) if self.shape[0] not in (4, 700) else zip(a, b, strict=True)
'''
CHANGED = {
    "int = 2", "int = 0", "bool = True", "values[(2)]", "values[(0)]", "if (last) * 3", "if (é) * 3", "if (é + last) <=",
    "if 3 <=", "* 4 <=", "* 2 <=", "3 < here", "is None or", "<= here or", "if last is not None or", "if not by:",
    "here and last is not None:", "if not ((é", "pass", "    OSError(", "dim=-2)", "dim=-0)", "sum(dim=-1) if", "shape[1]",
    "shape[0] in", "(5, 700)", "(3, 700)",
}  # fmt: skip


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    return checkout.committed()


@pytest.fixture(scope="module")
def every(sources: dict[str, str]) -> list[faults.Fault]:
    return faults.faults(sources)


def test_faults_of_a_file_cover_all_kinds_of_changes() -> None:
    found = faults.faults({"strategist/a.py": SOURCE})
    for part in CHANGED:
        assert sum(part in fault.changed and part not in fault.text for fault in found) >= 1, part
    untouched = {
        number for number, line in enumerate(SOURCE.splitlines(), 1) if any(map(line.__contains__, ("TYPE", "@", "assert", "str(")))
    }
    assert not untouched & {fault.line for fault in found}
    assert all(faults._differs(fault, SOURCE) for fault in found)


def test_a_change_is_the_same_wherever_its_line_stands_in_its_function() -> None:
    below = SOURCE.replace("    here:", "\n\n    here:")
    changes, moved = ([fault.change for fault in faults.faults({"strategist/a.py": text})] for text in (SOURCE, below))
    assert changes == moved
    assert {function for _, function, _, _ in changes} == {"taken", "Small.reduced"}


def test_each_fault_that_makes_no_difference_is_a_fault_of_the_code() -> None:
    why = mutation.reasons(mutation.EQUIVALENT)
    files = {path for path, *_ in why}
    every = faults.faults({path: (ROOT / path).read_text(encoding="utf-8") for path in files})
    assert why.keys() - {fault.change for fault in every} == set()


def test_cuda_only_code_of_the_runtime_has_no_faults() -> None:
    source = 'if on.type == "cuda":\n    a = 1\nelse:\n    a = 2\ndef nccl_version():\n    return 3\n'
    lines = {path: {fault.line for fault in faults.faults({path: source})} for path in ("strategist/a.py", "runtime/a.py")}
    assert lines == {"strategist/a.py": {1, 2, 4, 6}, "runtime/a.py": {1, 4}}


@pytest.mark.full
def test_draws_are_reproducible_and_cover_every_package(sources: dict[str, str], every: list[faults.Fault]) -> None:
    packages = {fault.package for fault in every}
    assert {"strategist", "strategist/lint/checks", "runtime/strategist_runtime", "runtime/strategist_runtime/parallel"} <= packages
    chosen = faults.drawn(every, sources, 23, 60)
    assert {fault.package for fault in chosen} == packages
    assert len({fault.name(23) for fault in chosen}) == 60
    assert chosen == faults.drawn(every, sources, 23, 80)[:60]
    assert chosen != faults.drawn(every, sources, 24, 60)
    assert len({fault.kind for fault in chosen}) == len({fault.kind for fault in every})
    for fault in chosen:
        before, after = sources[fault.path], fault.applied(sources[fault.path])
        ast.parse(after)
        differing = [pair for pair in zip(before.split("\n"), after.split("\n"), strict=True) if pair[0] != pair[1]]
        assert differing == [(fault.text, fault.changed)]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("strategist/cost/step.py", ["tests/cost/test_step.py", "tests/cost"]),
        ("strategist/cost/candidate_arrays.py", ["tests/cost"]),
        ("strategist/api/plans.py", ["tests/api"]),
        ("strategist/units.py", ["tests/test_units.py"]),
        ("strategist/errors.py", ["tests/test_errors.py"]),
        ("strategist/tuner/replay_benchmark.py", ["tests/tuner/test_replay_benchmark.py", "tests/tuner"]),
        ("strategist/lint/checks/card.py", ["tests/lint"]),
        ("runtime/strategist_runtime/parallel/expert_balance.py", ["tests/runtime/parallel"]),
        ("runtime/strategist_runtime/adapters/torchao.py", ["tests/runtime"]),
        ("runtime/strategist_runtime/trial.py", ["tests/runtime/test_trial.py", "tests/runtime"]),
    ],
)
def test_the_nearest_tests_come_first(path: str, expected: list[str]) -> None:
    assert mutation.places(path) == expected


def options(**given: object) -> SimpleNamespace:
    return SimpleNamespace(**{"seed": 23, "only": None, "again": False, "most": None, **given})


def test_known_results_are_not_tried_again(tmp_path: Path) -> None:
    chosen = faults.faults({"strategist/a.py": SOURCE})[:4]
    file = tmp_path / "build" / "results.jsonl"
    results = mutation.Results(file)
    for fault, verdict in zip(chosen, ("tests", "survived"), strict=False):
        results.add({"id": fault.name(23), "verdict": verdict})
    with pytest.raises(SystemExit, match="in use by another run"):
        mutation.Results(file)
    del results
    with file.open("a") as torn:
        torn.write('{"id": "' + chosen[2].name(23))
    again = mutation.Results(file)
    assert list(mutation.left(chosen, again, options())) == [3, 4]
    assert list(mutation.left(chosen, again, options(seed=24))) == [1, 2, 3, 4]
    assert list(mutation.left(chosen, again, options(again=True))) == [2, 3, 4]
    assert list(mutation.left(chosen, again, options(most=1))) == [3]
    assert list(mutation.left(chosen, again, options(most=0))) == []
    assert list(mutation.left(chosen, again, options(only=1))) == [1]
    again.add({"id": chosen[2].name(23), "verdict": "types"})
    assert file.read_text().count("\n") == 3


def test_the_page_changes_only_between_its_markers(tmp_path: Path) -> None:
    chosen = faults.faults({"strategist/a.py": SOURCE})[:5]
    verdicts = zip(chosen, ("tests", "types", "survived", "too long"), strict=False)
    rows = {fault.name(23): {"verdict": verdict, "rest": [] if verdict == "too long" else ["tests"]} for fault, verdict in verdicts}
    made = mutation.page(chosen, 23, rows, {chosen[2].change: "the value is not read"})
    assert "5 faults drawn by seed 23, 4 tried: 2 (50%) caught, 1 by a test, 1 by types alone." in made
    assert "| `strategist` | 5 | 4 | 2 |" in made
    assert f"`strategist/a.py:{chosen[2].line}`, {chosen[2].kind}, {chosen[2].name(23)}: " in made
    assert f"{chosen[3].name(23)}, tests ended by the time limit: " in made
    assert "Not caught: 2, of which 1 make no difference, for the reason given. 1 met the tests of their file and folder" in made
    assert "No difference: the value is not read" in made
    path = tmp_path / "page.md"
    path.write_text(f"before\n{mutation.BEGIN}\nold\n{mutation.END}\nafter\n")
    assert mutation.written(path) == path.read_text()
    path.write_text(mutation.written(path, made))
    assert path.read_text() == f"before\n{mutation.BEGIN}\n{made}\n{mutation.END}\nafter\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--count", "0"], "--count 0: has to be at least 1"),
        (["--count", "few"], "--count: invalid int value"),
        (["--only", "0"], "--only 0: has to be at least 1"),
        (["--limit", "nan"], "--limit nan: has to be"),
        (["--page", "/nowhere.md"], "--page /nowhere.md: cannot be read: No such file"),
        (["--page", str(ROOT / "LICENSE")], "has no place for the table"),
        (["--equivalent", "/nowhere.yaml"], "--equivalent /nowhere.yaml"),
        (["--equivalent", str(ROOT / "LICENSE")], "--equivalent"),
        (["--equivalent", str(ROOT / "tests" / "cards" / "requests.yaml")], "with the texts file, function, line, becomes, why"),
    ],
)
def test_wrong_input_prints_one_error_line(arguments: list[str], message: str) -> None:
    with pytest.raises(SystemExit, match=message) as ended:
        mutation.main(arguments)
    assert "\n" not in str(ended.value)
