"""Pytest plugin of reliability tests: small sizes in every run; ``make chaos`` writes docs/reliability.md.

A test marked ``chaos(section, property)`` uses the fixture ``chaos``, which gives sizes and a seed and records figures. With
``--weekly`` sizes are those of the page, and tests marked ``weekly`` run too; ``--figures PAGE`` writes rows of the tests that
ran, and keeps those of others. With ``--kept FOLDER`` a test that supports it stores its progress there, and resumes from it.
"""

import ast
import os
import platform
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from zlib import crc32

import pytest

SECTIONS = ("The store", "Trials", "Checkpoints", "Bad input", "Security")
INTRODUCTION = """# Reliability: what was tested, and the results

`make chaos` writes this page from its tests' results; no figure is typed in. Each row is one test at its full size, or as much of
it as fits into `--minutes`; the row states the size. `make test` and `make test-all` run smaller sizes. To repeat a row:
`make chaos ONLY='TEST' SEED=N`. Tests assert counts. Seconds in a row are those of its machine, and no test depends on them.
"""
PROTOCOL = Path(__file__).parents[1] / "runtime" / "strategist_runtime" / "training" / "checkpoint_protocol.py"
"""Its docstring is the protocol of saving, printed above the rows on checkpoints."""

HEAD = "| property | found | date | machine | seed | test |\n|---|---|---|---|---|---|\n"
WEEKLY_SECONDS = 7200
"""Timeout of a test of full size."""

Rows = dict[str, dict[str, "Row"]]
"""Rows by section and test."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the page."""

    property: str
    found: str
    date: str
    machine: str
    seed: str
    test: str

    def line(self) -> str:
        cells = (self.property, self.found, self.date, self.machine, self.seed, f"`{self.test}`")
        return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |\n"

    @classmethod
    def read(cls, line: str) -> "Row":
        cells = line.strip().removeprefix("| ").removesuffix(" |").split(" | ")
        return cls(**dict(zip(cls.__dataclass_fields__, [*cells[:5], cells[5].strip("`")], strict=True)))


@dataclass
class Chaos:
    """Sizes and seed of a test, and its figures, which :meth:`found` records."""

    weekly: bool
    seed: int
    seconds: float = float("inf")
    kept: Path | None = None
    begun: float = field(default_factory=time.monotonic)
    figures: list[str] = field(default_factory=list)

    def size(self, each_run: int, weekly: int) -> int:
        """The size: ``each_run`` in every run of the tests, ``weekly`` in ``make chaos``."""
        return weekly if self.weekly else each_run

    def more(self, share: float = 1.0) -> bool:
        """Whether this share of the test's time is left; a test that stops early states its size."""
        return time.monotonic() - self.begun < share * self.seconds

    def random(self) -> random.Random:
        """Random numbers of this seed."""
        return random.Random(self.seed)

    def found(self, figure: str) -> None:
        """Records a figure for the page; several are joined."""
        self.figures.append(figure)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("chaos")
    group.addoption("--weekly", action="store_true", help="tests of reliability at the size of docs/reliability.md")
    group.addoption("--seed", type=int, help="seed of random numbers; by default a new one with --weekly, otherwise fixed")
    group.addoption("--minutes", type=float, default=float("inf"), help="time limit of tests that repeat many times")
    group.addoption("--kept", type=Path, metavar="FOLDER", help="where resumable tests store their progress")
    group.addoption("--figures", type=Path, metavar="PAGE", help="write the figures into this page")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("figures") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Page(config.getoption("figures").absolute()))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("weekly"):
        for item in items:
            item.add_marker(pytest.mark.timeout(WEEKLY_SECONDS), append=False)
        return
    skipped = [item for item in items if item.get_closest_marker("weekly")]
    config.hook.pytest_deselected(items=skipped)
    items[:] = [item for item in items if item not in skipped]


@pytest.fixture
def chaos(request: pytest.FixtureRequest) -> Iterator[Chaos]:
    """Sizes and seed; a failing test prints its seed. Without --weekly the seed is fixed, so every run tests the same."""
    weekly: bool = request.config.getoption("weekly")
    given: int | None = request.config.getoption("seed")
    other = random.randrange(10**6) if weekly else crc32(request.node.nodeid.encode()) % 10**6
    options = request.config.option
    made = Chaos(weekly, other if given is None else given, 60 * options.minutes, options.kept)
    print("seed", made.seed)
    yield made
    marker = request.node.get_closest_marker("chaos")
    section, what = marker.args
    kind = f" ({request.node.callspec.id})" if hasattr(request.node, "callspec") else ""
    row = Row(
        property=what + kind, found="; ".join(made.figures), date=f"{date.today()}", machine=machine(), seed=f"{made.seed}",
        test=request.node.nodeid,
    )  # fmt: skip
    request.node.user_properties.append((section, row.line()))


def machine() -> str:
    """Description of this machine."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{len(os.sched_getaffinity(0))} cores, {memory_bytes / 2**30:.0f} GiB, Python {platform.python_version()}"


class Page:
    """Writes each test's row as soon as the test ends, so an aborted run keeps its rows."""

    def __init__(self, path: Path) -> None:
        self._path, self._failed = path, dict[str, str]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            figures = getattr(report.longrepr, "reprcrash", None)
            self._failed[report.nodeid] = " ".join(str(figures.message if figures else report.longrepr).split())[:200]
        if report.when == "teardown":
            self._write([(section, Row.read(str(line))) for section, line in report.user_properties if section in SECTIONS])

    def _write(self, found: list[tuple[str, Row]]) -> None:
        rows = read(self._path)
        for section, row in found:
            figures = f"**FAILED**: {self._failed[row.test]}" if row.test in self._failed else row.found
            if figures:  # empty if the test was skipped
                rows[section][row.test] = replace(row, found=figures)
        self._path.write_text(page(rows), encoding="utf-8")


def read(path: Path) -> Rows:
    """The rows of a page; none if the page does not exist."""
    rows: Rows = {section: {} for section in SECTIONS}
    section = ""
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif section and line.startswith("| ") and line != HEAD.splitlines()[0]:
            row = Row.read(line)
            rows[section][row.test] = row
    return rows


def page(rows: Rows) -> str:
    """The page, with rows sorted by test."""
    tables = (
        f"## {name}\n\n{_above(name)}{HEAD}{''.join(rows[name][test].line() for test in sorted(rows[name]))}"
        for name in SECTIONS
        if rows[name]
    )
    return "\n".join((INTRODUCTION, *tables))


def _above(section: str) -> str:
    """Text before the table of a section."""
    if section != "Checkpoints":
        return ""
    return f"```text\n{ast.get_docstring(ast.parse(PROTOCOL.read_text(encoding='utf-8')))}\n```\n\n"
