"""Evidence for cards from several files of trials, and the command that shows it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strategist.cards.deck import Deck
from strategist.cards.reader import read_card
from strategist.cli.main import main
from strategist.contract.evidence import PolicyEvidence
from strategist.contract.measurement import Measurement, Outcome
from strategist.contract.settings import with_settings
from strategist.files import yaml_file
from strategist.paths import data_dir
from strategist.profiles import history
from strategist.tuner import card_evidence
from strategist.tuner.card_evidence import collect_evidence, sources
from tests.contract.samples import MEASUREMENT, PLAN

CARD = """
StrategyCard:
  id: A-1
  title: The one
  module: recompute
  intent: Keep what was computed.
  policies:
    - {id: keep, prefer: {recompute: none}, because: It is faster.}
    - {id: never-twice, phase: observe, when: observed.mfu < 0.3, try: {recompute: none}, because: It was slow.}
"""
OTHER = CARD.replace("A-1", "B-2").replace("{recompute: none}", "{offload: all}").replace("The one", "The other")
DECK = Deck((read_card(yaml_file.parse(CARD)), read_card(yaml_file.parse(OTHER))))


def write(path: Path, *trials: tuple[str, float | None], **more: Any) -> Path:
    """Writes a file of trials that differ in recompute, with their step seconds; None for a failed trial."""
    for recompute, seconds in trials:
        plan = replace(PLAN, candidate=with_settings(PLAIN, {"recompute": recompute}))
        history.append(path, plan, replace(measured(seconds), **more))
    return path


PLAIN = with_settings(PLAN.candidate, {"recompute": "none", "offload": "none"})


def measured(seconds: float | None) -> Measurement:
    return replace(MEASUREMENT, step_seconds=seconds, outcome=Outcome.OOM if seconds is None else Outcome.OK)


def keep(found: tuple[PolicyEvidence, ...]) -> PolicyEvidence:
    return next(item for item in found if (item.card, item.policy) == ("A-1", "keep"))


def test_pairs_are_formed_within_a_file_and_counted_over_all(tmp_path: Path) -> None:
    slow = write(tmp_path / "slow.jsonl", ("none", 10.0), ("full", 13.0))
    fast = write(tmp_path / "fast.jsonl", ("none", 1.0), ("full", 0.9), ("selective", None))
    found = collect_evidence(DECK, [slow, fast])
    counted = keep(found.evidence)
    assert (counted.applied, counted.confirmed, counted.contradicted) == (2, 2, 1)
    assert [(pair.followed, pair.ignored) for pair in counted.pairs] == [
        ("slow:1", "slow:2"), ("fast:1", "fast:2"), ("fast:1", "fast:3"),
    ]  # fmt: skip
    assert found.trials == {str(slow): 2, str(fast): 3}
    assert {item.card for item in found.evidence} == {"A-1", "B-2"}


def test_infrastructure_failures_are_no_evidence(tmp_path: Path) -> None:
    file = write(tmp_path / "one.jsonl", ("none", 1.0))
    write(file, ("full", None), outcome=Outcome.INFRASTRUCTURE)
    assert collect_evidence(DECK, [file]).trials == {str(file): 1}
    assert keep(collect_evidence(DECK, [file]).evidence).pairs == ()


def test_a_truncated_line_is_a_finding(tmp_path: Path) -> None:
    file = write(tmp_path / "one.jsonl", ("none", 1.0))
    file.write_text(file.read_text() + '{"version": 1, "pl')
    assert [finding.code for finding in collect_evidence(DECK, [file]).findings] == ["HIST001"]


def test_shipped_measurements_are_the_default_source(tmp_path: Path) -> None:
    shipped = sources([], [])
    assert shipped == sorted((data_dir("profiles") / "measurements").glob("*.jsonl"))
    assert shipped
    assert sources([tmp_path], ["a.jsonl"]) == [tmp_path / "history.jsonl", Path("a.jsonl")]


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "first").mkdir()
    (tmp_path / "cards").mkdir()
    (tmp_path / "cards/A-1-one.yaml").write_text(CARD)
    (tmp_path / "cards/B-2-other.yaml").write_text(OTHER)
    write(tmp_path / "first/history.jsonl", ("none", 1.0), ("full", 1.5), ("selective", 0.8))
    return tmp_path


def run(study: Path, *arguments: str) -> int:
    return main(["cards", "evidence", *arguments, "--study", str(study / "first"), "--cards", str(study / "cards")])


def test_the_command_shows_counts_and_trials(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(study, "A-1") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "A-1 The one" in text
    assert "keep plan 1 - 1 1" in text
    assert "keep, for it: trial first:1 with recompute none took 1 s, trial first:2 with recompute full took 1.5 s" in text
    assert (
        "keep, against it: trial first:1 with recompute none took 1 s, trial first:3 with recompute selective took 800 ms" in text
    )
    assert "FSDP-001" not in text


def test_cards_without_evidence_are_named_on_request(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(study, "A-1", "B-2")
    assert "B-2" not in capsys.readouterr().out
    run(study, "A-1", "B-2", "--all")
    assert "Cards without trials B-2" in " ".join(capsys.readouterr().out.split())
    run(study, "B-2")
    assert "No trial tests these cards." in capsys.readouterr().out


def test_the_command_prints_json(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(study, "A-1", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["trials"] == {str(study / "first/history.jsonl"): 3}
    (counted,) = data["evidence"]
    assert (counted["card"], counted["policy"], counted["confirmed"], counted["contradicted"]) == ("A-1", "keep", 1, 1)
    assert counted["pairs"][0]["differs"] == {"knobs.recompute": ["none", "full"]}


def test_the_command_uses_shipped_measurements_by_default(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a folder with few of them: every card is compared with every pair of trials."""
    (study / "measurements").mkdir()
    write(study / "measurements" / "shipped.jsonl", ("none", 1.0), ("full", 1.5))
    monkeypatch.setattr(card_evidence, "data_dir", lambda name: study)
    assert main(["cards", "evidence", "--cards", str(study / "cards")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "2 trials:" in text
    assert "trial shipped:1 with recompute none took 1 s" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["X-9"], "card X-9: is not in the deck"), (["--measurements", "absent.jsonl"], "absent.jsonl: cannot be read")],
)
def test_an_unknown_card_or_file_prints_one_error_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cards", "evidence", *arguments]) != 0
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
