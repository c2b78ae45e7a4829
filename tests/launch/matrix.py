"""The table of formats and launchers in docs/engines.md, from the parameters of the tests that start them."""

from collections.abc import Callable, Iterator
from itertools import product

from launch import test_starts as tests
from launch.launchers import LAUNCHERS
from strategist.formats.catalog import formats

COLUMNS = {
    "bash": "one node", "hosts": "ssh hosts", "slurm": "Slurm", "job": "Job", "jobset": "JobSet", "pytorchjob": "PyTorchJob",
    "trainjob": "TrainJob", "rayjob": "RayJob",
}  # fmt: skip
"""Kinds of jobs, ``bash`` for the start script of a single node."""

REAL = "real"
STARTS: dict[Callable[..., None], tuple[str, str]] = {
    tests.test_ranks_rendezvous_on_two_nodes_with_the_real_launcher: (REAL, ""),
    tests.test_ranks_rendezvous_on_nodes_of_a_real_slurm: (f"{REAL} + Slurm", "slurm"),
    tests.test_ranks_rendezvous_on_nodes_of_a_real_ray: (f"{REAL} + Ray", "rayjob"),
    tests.test_every_job_of_every_format_gives_ranks_their_environment: ("stub", ""),
}
"""Tests, each with the word of its cells, and the kind of job if it is no parameter; a test without formats has all formats.
"""


def matrix() -> str:
    """One row per format; a cell lists how its tests start the export, with a star if only `make chaos` does."""
    cells: dict[tuple[str, str], list[str]] = {}
    for test, (word, kind) in STARTS.items():
        for cell, mark in _cells(test, kind):
            cells.setdefault(cell, []).append(word + mark)
    rows = [f"| format | its launcher | {' | '.join(COLUMNS.values())} |", f"| --- | --- |{' --- |' * len(COLUMNS)}"]
    for name in formats():
        found = (", ".join(cells.get((kind, name), ["-"])) for kind in COLUMNS)
        rows.append(f"| {name} | `{LAUNCHERS[name]}` | {' | '.join(found)} |")
    return "\n".join(rows)


def _cells(test: Callable[..., None], kind: str) -> Iterator[tuple[tuple[str, str], str]]:
    """Kinds and formats of a test, with a star for weekly tests."""
    [mark] = [mark for mark in test.pytestmark if mark.name == "parametrize"]  # type: ignore[attr-defined]
    names, parameters = mark.args
    for given in parameters:
        weekly = "*" if any(mark.name == "weekly" for mark in getattr(given, "marks", ())) else ""
        values = getattr(given, "values", given if isinstance(given, tuple) else (given,))
        given_values = dict(zip((names,) if isinstance(names, str) else names, values, strict=True))
        kinds, chosen = (
            [given_values["kind"]] if "kind" in given_values else [kind],
            [given_values["format"]] if "format" in given_values else formats(),
        )
        yield from ((cell, weekly) for cell in product(kinds, chosen))
