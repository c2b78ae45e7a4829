"""Bad and good files for each code: bad files have exactly their marked findings, good files none of this code."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from strategist.contract.card_example import ScriptOutcome, ScriptResult
from strategist.contract.torch_symbol import Reference, ReferenceOutcome
from strategist.lint.checks.all import RULES
from strategist.lint.environment import LintEnvironment
from strategist.lint.run import lint
from strategist.paths import data_dir

DECK = Path(__file__).parent / "deck"
CODES = [rule.code for rule in RULES]
MARK = re.compile(r"# <- ((?:[A-Z]+[0-9]+ ?)+)")

CAT = Reference(symbol="torch.cat", outcome=ReferenceOutcome.FOUND, file="torch/functional.py", first_line=100, last_line=150)
ENVIRONMENT = LintEnvironment(
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
    """One file, one folder, or several numbered folders, of which later ones replace cards of earlier ones."""
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
def test_a_bad_file_has_exactly_its_marked_findings(code: str) -> None:
    places = folders(code, "bad")
    wanted = sorted(mark for place in places for mark in marks(place))
    assert code in {mark[0] for mark in wanted}
    found = lint(places, ENVIRONMENT)
    assert sorted((finding.code, finding.path, finding.line) for finding in found) == wanted
    assert all(finding.column and finding.message and finding.do for finding in found)
    assert not any("\n" in finding.message + finding.do for finding in found)


@pytest.mark.parametrize("code", CODES)
def test_a_good_file_has_no_finding_of_its_code(code: str) -> None:
    places = (
        [data_dir("cards")] if code == "FLOW005" else folders(code, "good")
    )  # a complete flow is long, and the shipped deck has one
    assert all(files(place) for place in places)
    assert [str(finding) for finding in lint(places, ENVIRONMENT) if finding.code == code] == []


def test_every_folder_belongs_to_a_code() -> None:
    assert sorted(folder.name for folder in DECK.iterdir()) == CODES


def test_checks_of_the_environment_need_an_environment() -> None:
    for code in ("CARD042", "CARD043", "CARD044"):
        assert lint([DECK / code / "bad.yaml"]) == ()


def test_unknown_torch_symbols_are_no_finding() -> None:
    unknown = [
        Reference(symbol=symbol, parameter=name, outcome=ReferenceOutcome.UNKNOWN) for symbol, name in ENVIRONMENT.references
    ]
    known_environment = replace(ENVIRONMENT, references={(found.symbol, found.parameter): found for found in unknown})
    assert [lint([DECK / code / "bad.yaml"], known_environment) for code in ("CARD042", "CARD043")] == [(), ()]
