"""``--lang zh``: texts of cards are shown in Chinese; files, JSON and messages stay English."""

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from rich.cells import cell_len

from strategist.cards.deck import load_deck
from strategist.cli.main import main
from strategist.paths import data_dir

Captured = pytest.CaptureFixture[str]

DECK = load_deck(data_dir("cards"))
CHINESE = re.compile("[\u4e00-\u9fff]")
ASKED = ["--model", "8b", "--gpus", "1x24GB"]
MINE = """\
StrategyCard:
  id: MY-001
  module: recompute
  intent: A test.
  policies:
    - {id: own, warn: true, because: Ours.}
    - {id: both, warn: true, because: {en: Yours., zh: 自己的。}}
"""


def printed(capsys: Captured, *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


def because(card: str, policy: str) -> str:
    found = DECK.card(card).policy(policy)
    assert found is not None
    return found.because.zh


def squeezed(text: str) -> str:
    """The text without whitespace, as table cells break lines."""
    return re.sub(r"\s", "", text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an English answer and its plan."""
    place = tmp_path_factory.mktemp("asked")
    with redirect_stdout(io.StringIO()) as out:
        assert main(["plan", *ASKED, "--json", "-o", str(place / "plan.json")]) == 0
    (place / "answer.json").write_text(out.getvalue(), encoding="utf-8")
    return place


@pytest.fixture
def plan_file(folder: Path) -> str:
    return str(folder / "plan.json")


def test_reasons_of_a_plan_are_chinese_and_headings_english(
    folder: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's card is shown in Chinese, or in English where its text has no Chinese."""
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "mine.yaml").write_text(MINE, encoding="utf-8")
    english = printed(capsys, "plan", *ASKED, "--explain")
    chinese = printed(capsys, "plan", *ASKED, "--explain", "--cards", str(tmp_path), "--lang", "zh")
    assert not CHINESE.search(english)
    assert squeezed(because("AC-002", "activations-beyond-the-device")) in squeezed(chinese)
    for ours in ("Cards that decided it", "dropped by cards:"):
        assert ours in english
        assert ours in chinese
    assert "own (warn): Ours." in chinese
    assert "both (warn): 自己的。" in chinese
    assert max(map(cell_len, chinese.splitlines())) <= 100, "wide characters stay inside the table"


def test_the_plan_file_and_json_do_not_depend_on_the_language(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    other = tmp_path / "other.json"
    json = printed(capsys, "plan", *ASKED, "--lang", "zh", "--json", "-o", str(other))
    assert other.read_bytes() == (folder / "plan.json").read_bytes()
    assert json == (folder / "answer.json").read_text(encoding="utf-8")


def test_reasons_of_explain_and_why_not_are_chinese(capsys: Captured, plan_file: str) -> None:
    explained = squeezed(printed(capsys, "explain", plan_file, "--lang", "zh"))
    [step] = [step for flow in DECK.flows for step in flow.steps if step.id == "memory"]
    for text in (step.title.zh, step.rule.zh, step.because.zh, because("SEL-004", "no-way-of-cutting-helps")):
        assert squeezed(text) in explained
    refused = squeezed(printed(capsys, "explain", plan_file, "--why-not", "offload=none", "--lang", "zh"))
    assert "SEL-004/no-way-of-cutting-helpsrulesitout:" + squeezed(because("SEL-004", "no-way-of-cutting-helps")) in refused


def test_a_report_page_declares_its_language(tmp_path: Path, capsys: Captured, plan_file: str) -> None:
    pages = {}
    for language in ("en", "zh"):
        printed(capsys, "report", plan_file, "--lang", language, "-o", str(tmp_path / "page.html"))
        pages[language] = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert f'<html lang="{language}">' in pages[language]
    assert because("SEL-004", "no-way-of-cutting-helps") in pages["zh"]
    assert not CHINESE.search(pages["en"])


def test_reasons_of_a_review_are_chinese(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "ds.json"
    path.write_text('{"zero_optimization": {"stage": 0}, "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}}')
    main(["check", str(path), "--model", "8b", "--gpus", "1x24GB", "--lang", "zh"])
    assert CHINESE.search(capsys.readouterr().out)
    main(["check", str(path), "--model", "8b", "--gpus", "1x24GB"])
    assert not CHINESE.search(capsys.readouterr().out)


def test_cards_are_listed_and_shown_in_chinese(capsys: Captured) -> None:
    card = DECK.card("FSDP-001")
    assert card.title.zh in printed(capsys, "cards", "list", "--lang", "zh")
    shown = squeezed(printed(capsys, "cards", "show", "FSDP-001", "--lang", "zh"))
    texts = [card.intent, *(item.text for item in card.preconditions), *(point.effect for point in card.control_points)]
    for text in (*texts, *(policy.because for policy in card.policies), *(risk.text for risk in card.risks)):
        assert squeezed(text.zh) in shown
    assert DECK.flows[0].intent.zh in printed(capsys, "cards", "show", "training-layout", "--lang", "zh")
    assert printed(capsys, "cards", "show", "FSDP-001", "--json") == printed(
        capsys, "cards", "show", "FSDP-001", "--json", "--lang", "zh"
    )
