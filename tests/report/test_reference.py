"""Reference pages of cards, settings and the linter are complete."""

import posixpath
import re
from dataclasses import replace
from pathlib import Path

import pytest

from strategist import api
from strategist.cards.card import Card
from strategist.cards.deck import Deck
from strategist.cards.reader import read_card
from strategist.cli.main import main
from strategist.contract.settings import CONVERGENCE_SETTINGS, SETTING_NAMES, full_name
from strategist.errors import FileError
from strategist.expr.parse import FUNCTIONS, LITERAL_UNITS
from strategist.expr.vocabulary import SETTINGS, VOCABULARY
from strategist.files.yaml_file import parse
from strategist.report.reference.markdown import prose, table
from strategist.report.reference.pages import MARK, reference, write

ROOT = Path(__file__).parents[2]
DECK = api.load_cards()
PAGES = api.reference()

CARD = """
StrategyCard:
  id: ../../A-1
  module: tp
  intent: {en: "2 * 3 < 7 | so `a * b` it is", zh: 乘}
  preconditions: [Ask first.]
  control_points: [{name: tp, path: layout.tp, values: [1, 2]}, How often.]
  observables: [Watch the loss.]
  policies:
    - {id: a, when: layout.tp > 4, warn: true, because: Wide.}
    - {id: b, forbid: candidate, when: layout.tp > 8, because: Wider.}
    - Do it well.
  interactions: [{card: TP-999, text: Unknown here.}]
  example: [Like this.]
  source_refs: [A book.]
  cases:
    - {given: {candidate: {tp: 2}}, expect: {reasons: []}}
    - {given: {facts: {model.parameter_bytes: 2 GB}, candidate: {tp: 16}}, expect: forbidden}
"""


def test_every_card_flow_setting_name_and_check_has_a_page() -> None:
    assert {f"cards/{card.id}.md" for card in DECK.cards} <= set(PAGES)
    assert {f"flows/{flow.id}.md" for flow in DECK.flows} <= set(PAGES)
    assert {f"lint/{entry.code}.md" for entry in api.lint_checks()} <= set(PAGES)
    assert all(f"`{name}`" in PAGES["vocabulary.md"] for name in VOCABULARY)
    assert all(f"`{name}`" in PAGES["expressions.md"] for name in (*FUNCTIONS, *LITERAL_UNITS, "and", "not in"))
    for name in SETTING_NAMES:
        assert f"\n### {name}\n" in PAGES[f"settings/{full_name(name).partition('.')[0]}.md"]


@pytest.mark.parametrize("card", DECK.cards, ids=lambda card: card.id)
def test_the_page_of_a_card_has_all_its_fields(card: Card) -> None:
    text = PAGES[f"cards/{card.id}.md"]
    words = [card.title, card.intent, *card.preconditions, *card.risks, *card.evidence, *card.interactions]
    for item in words:
        text_of_item = getattr(item, "text", item)
        assert prose(text_of_item).removesuffix(".") in text
    assert prose(card.intent.zh) in text
    for policy in card.policies:
        assert f"### {policy.id}\n" in text
        assert prose(policy.because) in text
        assert policy.when is None or f"`{' '.join(policy.when.text.split())}`" in text
    for example in card.example:
        assert example.run.rstrip() in text
    for ref in card.source_refs:
        assert ref.symbol in text
        assert ref.url in text
    assert text.count("\n| ") >= len(card.cases)


def test_pages_of_settings_show_convergence_cards_and_back_ends() -> None:
    for name in SETTING_NAMES:
        page = PAGES[f"settings/{full_name(name).partition('.')[0]}.md"]
        entry = page.partition(f"\n### {name}\n")[2].partition("\n### ")[0]
        assert prose(SETTINGS[full_name(name)].doc) in entry
        assert ("changes convergence" in entry) is (name in CONVERGENCE_SETTINGS)
    knobs = PAGES["settings/knobs.md"]
    assert "[AC-001](../cards/AC-001.md)" in knobs.partition("\n### recompute\n")[2].partition("\n### ")[0]
    assert "back end transformers takes `none`, `optimizer` only" in knobs.partition("\n### offload\n")[2].partition("\n### ")[0]
    together = 'back end native refuses `knobs.float8 != "none" and knobs.offload == "streamed"`: stages are streamed as they are'
    assert together in knobs.partition("\n### offload\n")[2].partition("\n### ")[0]


def test_links_have_existing_targets() -> None:
    for path, text in PAGES.items():
        for target in re.findall(r"\]\(([^)]+)\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
            place, _, anchor = target.partition("#")
            page = posixpath.normpath(posixpath.join(posixpath.dirname(path), place))
            assert page in PAGES, f"{path}: {target}"
            assert not anchor or re.search(rf"^##+ {anchor}$", PAGES[page], re.MULTILINE), f"{path}: {target}"


def test_no_page_contains_a_path_of_this_machine() -> None:
    assert [path for path, text in PAGES.items() if str(ROOT) in text or str(Path.home()) + "/" in text] == []


def test_pages_change_with_the_deck() -> None:
    less = reference(DECK.without("FSDP-001"), api.lint_checks())
    assert set(PAGES) - set(less) == {"cards/FSDP-001.md"}
    changed = {path for path in less if less[path] != PAGES[path]}
    assert {"cards/README.md", "cards/FSDP-002.md", "settings/knobs.md", "flows/training-layout.md"} <= changed
    assert "vocabulary.md" not in changed


def test_markdown_characters_are_escaped() -> None:
    pages = reference(Deck((read_card(parse(CARD)),)), ())
    assert all(".." not in path for path in pages)
    [text] = [text for path, text in pages.items() if path.endswith("A-1.md")]
    for words in (
        r"2 \* 3 \< 7 | so `a * b` it is",
        "乘",
        "- Ask first.",
        "How often.",
        "- Watch the loss.",
        "**warn**",
        "**forbid** the candidate",
        "Advice: Do it well.",
        "- TP-999: Unknown here.",
        "Like this.",
        "- A book.",
        "| 1 | - | `tp = 2` | no reasons |",
        "| 2 | `model.parameter_bytes = 2 GB` | `tp = 16` | forbidden |",
    ):
        assert words in text
    assert table(["a"], [["b | c"]]).endswith(r"| b \| c |")


def test_writing_removes_stale_pages_and_keeps_the_users_files(tmp_path: Path) -> None:
    old, own = tmp_path / "cards" / "OLD-001.md", tmp_path / "cards" / "notes.md"
    old.parent.mkdir()
    old.write_text(MARK + "# OLD-001\n", encoding="utf-8")
    own.write_text("# Our notes\n", encoding="utf-8")
    assert write(PAGES, tmp_path) == (old,)
    assert not old.exists()
    assert own.read_text(encoding="utf-8") == "# Our notes\n"
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.md")} == {*PAGES, "cards/notes.md"}
    assert write(PAGES, tmp_path) == ()


def test_an_unwritable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("", encoding="utf-8")
    with pytest.raises(FileError, match="taken"):
        write(PAGES, tmp_path / "taken")


def test_the_command_writes_pages_of_the_users_cards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "a.yaml").write_text("StrategyCard: {id: TEAM-1, module: tp, intent: Why}", encoding="utf-8")
    assert main(["cards", "reference", str(tmp_path / "out"), "--cards", str(own)]) == 0
    assert capsys.readouterr().out == f"wrote {len(PAGES) + 1} pages into {tmp_path / 'out'}\n"
    assert "TEAM-1" in (tmp_path / "out" / "cards" / "TEAM-1.md").read_text(encoding="utf-8")


def test_the_index_counts_its_cards() -> None:
    few = replace(DECK, cards=DECK.cards[:3])
    index = reference(few, ())["cards/README.md"]
    assert "3 cards." in index
    assert index.count("](") == 3
