"""A folder of bad and good files for each code: bad ones have exactly the findings marked in them, good ones none of it."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from strategist.contract.example import ScriptOutcome, ScriptResult
from strategist.contract.torch_symbol import Reference, ReferenceOutcome
from strategist.lint.checks.all import RULES
from strategist.lint.environment import LintEnvironment
from strategist.lint.run import lint
from strategist.paths import data_dir

DECK = Path(__file__).parent / "deck"
CODES = [rule.code for rule in RULES]
MARK = re.compile(r"# <- ((?:[A-Z]+[0-9]+ ?)+)")

CAT = Reference(symbol="torch.cat", outcome=ReferenceOutcome.FOUND, file="torch/functional.py", first_line=100, last_line=150)
WORLD = LintEnvironment(
    torch_version="2.13.0",
    references={
        ("torch.cat", "dim"): CAT,
        ("torch.cat", ""): CAT,
        ("torch.cat", "gone"): Reference(symbol="torch.cat", outcome=ReferenceOutcome.NO_PARAMETER, near=("dim",)),
        ("torch.gone", ""): Reference(symbol="torch.gone", outcome=ReferenceOutcome.NO_SYMBOL),
    },
    examples={
        (str(DECK / "CARD044" / kind), index): ScriptResult(outcome=outcome, seconds=1.0, message="ModuleNotFoundError: no module")
        for kind, outcomes in {
            "bad.yaml": (ScriptOutcome.PASSED, ScriptOutcome.FAILED),
            "good.yaml": (ScriptOutcome.PASSED, ScriptOutcome.REFUSED),
        }.items()
        for index, outcome in enumerate(outcomes)
    },
)


def files(place: Path) -> list[Path]:
    return sorted(place.rglob("*.yaml")) if place.is_dir() else [place]


def folders(code: str, kind: str) -> list[Path]:
    """One file; or a folder, or several of which later ones replace earlier ones."""
    place = DECK / code / kind
    if not place.is_dir():
        return [place.with_suffix(".yaml")]
    numbered = sorted(folder for folder in place.iterdir() if folder.name.isdigit())
    return numbered or [place]


def marks(place: Path) -> Iterator[tuple[str, str, int]]:
    for path in files(place):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if found := MARK.search(line):
                yield from ((code, str(path), number) for code in found.group(1).split())


@pytest.mark.parametrize("code", CODES)
def test_a_bad_file_has_the_findings_that_are_marked_and_no_others(code: str) -> None:
    places = folders(code, "bad")
    wanted = sorted(mark for place in places for mark in marks(place))
    assert code in {mark[0] for mark in wanted}
    found = lint(places, WORLD)
    assert sorted((finding.code, finding.path, finding.line) for finding in found) == wanted
    assert all(finding.column and finding.message and finding.do for finding in found)
    assert not any("\n" in finding.message + finding.do for finding in found)


@pytest.mark.parametrize("code", CODES)
def test_a_good_file_has_none_of_it(code: str) -> None:
    places = [data_dir("cards")] if code == "FLOW005" else folders(code, "good")  # a whole flow is long, and we have one
    assert all(files(place) for place in places)
    assert [str(finding) for finding in lint(places, WORLD) if finding.code == code] == []


def test_every_folder_belongs_to_a_code() -> None:
    assert sorted(folder.name for folder in DECK.iterdir()) == CODES


def test_without_a_world_nothing_is_said_of_it() -> None:
    for code in ("CARD042", "CARD043", "CARD044"):
        assert lint([DECK / code / "bad.yaml"]) == ()


def test_what_cannot_be_told_of_torch_is_no_finding() -> None:
    unknown = [Reference(symbol=symbol, parameter=name, outcome=ReferenceOutcome.UNKNOWN) for symbol, name in WORLD.references]
    world = replace(WORLD, references={(found.symbol, found.parameter): found for found in unknown})
    assert [lint([DECK / code / "bad.yaml"], world) for code in ("CARD042", "CARD043")] == [(), ()]
