"""The user's cards on the command line: added, replaced, left out, created, and named in the answer."""

import json
from pathlib import Path

import pytest

from strategist.cards.card import Status
from strategist.cards.deck import load_deck
from strategist.cli.main import main
from strategist.contract import codec
from strategist.contract.answer import Answer
from strategist.contract.explanation import Explanation

TINY = ["--model", "tiny", "--gpus", "4xcpu", "--seq-len", "128", "--global-batch", "16"]
FULL = """\
protocol: 1
StrategyCard:
  id: {id}
  module: recompute
  intent: A test.
  policies:
    - {{id: full, require: {{recompute: {value}}}, because: A test.}}
"""
WORDS = "StrategyCard:\n  module: fsdp2\n  intent: 显存节省 vs 通信开销\n  policies: [Free the root last.]\n"


def write_card(folder: Path, value: str = "full", card_id: str = "MY-001") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "mine.yaml").write_text(FULL.format(id=card_id, value=value), encoding="utf-8")
    return folder


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> Answer:
    assert main(["plan", *TINY, *arguments, "--json"]) == 0
    return codec.loads(Answer, capsys.readouterr().out)


def test_a_card_folder_decides_plans_and_is_named_in_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_card(tmp_path / "a")
    planned = answer(capsys, "--cards", str(folder))
    assert {plan.candidate.knobs.recompute for plan in planned.plans} == {"full"}
    assert planned.not_as_shipped == (f"MY-001 comes from {folder / 'mine.yaml'}",)
    assert main(["plan", *TINY, "--cards", str(folder)]) == 0
    assert "MY-001 comes from" in capsys.readouterr().out


def test_the_later_card_folder_wins_and_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = write_card(tmp_path / "a"), write_card(tmp_path / "b", "selective")
    planned = answer(capsys, "--cards", str(first), "--cards", str(second))
    assert {plan.candidate.knobs.recompute for plan in planned.plans} == {"selective"}
    place = f"{second / 'mine.yaml'}, in place of {first / 'mine.yaml'}"
    assert planned.not_as_shipped == (f"MY-001 comes from {place}",)


def test_a_card_can_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    def dropping_cards(planned: Answer) -> set[str]:
        return {item.card for item in planned.dropped}

    with_all, without = answer(capsys), answer(capsys, "--without", "BATCH-002", "--without", "OFF-004")
    assert without.not_as_shipped == ("BATCH-002 is left out", "OFF-004 is left out")
    assert "OFF-004" in dropping_cards(with_all) - dropping_cards(without)
    assert without.plans[0].digests.deck != with_all.plans[0].digests.deck
    assert main(["plan", *TINY, "--without", "XX-001"]) == 2
    assert "card XX-001: is not in the deck" in capsys.readouterr().err


def test_every_deciding_command_has_cards_and_without_options(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("plan", "tune", "explain"):
        assert main([command, "--help"]) == 0
        help_text = capsys.readouterr().out
        assert "--cards DIR|NAME" in help_text
        assert "--without ID" in help_text


def test_explain_uses_the_users_cards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, file = write_card(tmp_path / "a"), tmp_path / "plan.json"
    assert main(["plan", *TINY, "--cards", str(folder), "-o", str(file)]) == 0
    capsys.readouterr()
    assert main(["explain", str(file), "--cards", str(folder), "--json"]) == 0
    explanation = codec.loads(Explanation, capsys.readouterr().out)
    (decision,) = (item for item in explanation.decisions if item.setting == "recompute")
    assert decision.step == "memory"
    assert "MY-001" in {reason.card for reason in decision.reasons}
    assert main(["explain", str(file), "--cards", str(folder), "--why-not", "recompute=none"]) == 0
    assert "MY-001/full rules it out" in capsys.readouterr().out
    assert main(["explain", str(file), "--cards", str(folder), "--without", "MY-001", "--why-not", "recompute=none"]) == 0
    assert "MY-001" not in capsys.readouterr().out


def test_explanations_follow_the_flow_of_decisions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *TINY, "-o", str(tmp_path / "plan.json")]) == 0
    capsys.readouterr()
    assert main(["explain", str(tmp_path / "plan.json")]) == 0
    text = capsys.readouterr().out
    places = [text.index(words) for words in ("1. The device mesh", "tp = ", "recompute = ", "micro_batch = ")]
    assert places == sorted(places)
    assert "Other settings" not in text


def test_the_listing_shows_kinds_and_origins_of_cards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_card(tmp_path / "a", card_id="TP-001")
    (folder / "words.yaml").write_text(WORDS, encoding="utf-8")
    assert main(["cards", "list", "--cards", str(folder), "--json"]) == 0
    listed = {item["id"]: item for item in json.loads(capsys.readouterr().out)}
    assert [listed[key]["kind"] for key in ("TP-001", "words", "training-layout", "TP-002")] == ["card", "advice", "flow", "card"]
    assert listed["TP-001"]["file"] == str(folder / "mine.yaml")
    assert main(["cards", "list", "--cards", str(folder)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "words fsdp2 advice 显存节省 vs 通信开销" in text
    assert "training-layout" in text
    assert "TP-001 comes from" in text
    assert "in place of" in text
    assert main(["cards", "show", "words", "--cards", str(folder)]) == 0
    assert "it acts on nothing" in capsys.readouterr().out


def test_a_flow_is_shown_completely(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cards", "show", "training-layout"]) == 0
    text = capsys.readouterr().out
    assert "1. The device mesh" in text
    assert "when     model.is_moe" in text
    assert main(["cards", "show", "training-layout", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["DecisionFlow"]["id"] == "training-layout"


def test_a_new_card_is_sound_and_shapes_a_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["cards", "new", "AC-101", "--title", "Save memory first"]) == 0
    assert "wrote my-cards/AC-101-save-memory-first.yaml" in capsys.readouterr().out
    (card,) = load_deck("my-cards").cards
    assert (card.id, card.module, str(card.title), card.status) == ("AC-101", "recompute", "Save memory first", Status.PREVIEW)
    assert main(["cards", "lint", "my-cards"]) == 0
    capsys.readouterr()
    assert main(["cards", "new", "AC-101", "--title", "Save memory first"]) == 2
    assert "is there already" in capsys.readouterr().err
    request = ["plan", "--model", "7b", "--gpus", "8x24GB", "--seq-len", "8192", "--cards", "my-cards", "--json", "--top", "1"]
    assert main([*request, "--fix", "recompute=full"]) == 0
    (plan,) = codec.loads(Answer, capsys.readouterr().out).plans
    assert ("AC-101", "for-long-sequences") in {(reason.card, reason.policy) for reason in plan.reasons}


def test_cards_and_flows_have_schemas(capsys: pytest.CaptureFixture[str]) -> None:
    titles = []
    for kind in ("card", "flow"):
        assert main(["cards", "schema", kind]) == 0
        titles.append(json.loads(capsys.readouterr().out)["title"])
    assert titles == ["StrategyCard", "DecisionFlow"]
    assert main(["cards", "schema", "plan"]) == 2
    assert "choose one of card, flow" in capsys.readouterr().err
