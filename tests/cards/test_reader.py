"""Reading cards from documents, and refusals."""

from pathlib import Path

import pytest

from strategist.cards.card import EffectKind, Example, Phase, Status, Text
from strategist.cards.reader import inspect, read_card
from strategist.errors import FileError
from strategist.files import yaml_file

HANDBOOK = """\
StrategyCard:
  module: fsdp2
  intent: "显存节省 vs 通信开销"
  preconditions:
    - "模型参数量大"
  control_points:
    - name: reshard_after_forward
      effect: "param lifetime + all-gather 压力"
  observables:
    - "comm_ratio"
  policies:
    - "root: False, others: True"
    - "PCIe 瓶颈时使用 int 子组"
  risks:
    - "False 可能造成显存爆炸"
  source_refs:
    - "_fully_shard.py:144-161"
  example:
    - "fully_shard(model, reshard_after_forward=False)"
"""
CARD_TEXT = """\
StrategyCard:
  id: X-001
  title: {en: Title, zh: 标题}
  status: stable
  module: tp
  intent: Why
  preconditions:
    - {when: layout.tp > 1, text: There is tp.}
  control_points:
    - {name: recompute, path: knobs.recompute, values: [none, full], changes: convergence}
  observables:
    - {name: memory, metric: observed.peak_memory_bytes}
  policies:
    - id: law
      when: model.layers > 8
      forbid: {recompute: none, tp: [4, 8]}
      because: {en: Because, zh: 因为}
    - id: liked
      prefer: candidate
      because: It is.
    - id: next
      phase: observe
      when: observed.mfu < 0.2
      try: {micro_batch: knobs.micro_batch * 2, recompute: [full]}
      because: It is.
  risks:
    - {when: layout.tp > 4, text: Slow., fallback: {tp: 4}}
  cases:
    - given: {facts: {device.memory_bytes: 24 GiB, model.layers: 9}, candidate: {tp: 4, knobs.recompute: none}}
      expect: forbidden
"""
EXAMPLE = """\
StrategyCard:
  module: tp
  intent: Why
  example:
    - refused: no device
      ranks: 2
      run: |
        print(1)
    - Do not.
  source_refs: [{symbol: torch.a, lines: 144-161}, {symbol: torch.a, lines: "7"}, {symbol: torch.a}]
"""
NO_CARDS = ("", "a: 1", "StrategyCard: 3", "StrategyCard: {module: tp}", "- 1", "StrategyCard: {module: a, intent: b}\nx: 1")


def test_a_card_of_free_text_loads_as_advice() -> None:
    card = read_card(yaml_file.parse(HANDBOOK, "cards/handbook.yaml"))
    assert (card.id, card.module, card.status) == ("handbook", "fsdp2", Status.PREVIEW)
    assert not card.acts
    assert [str(policy.because) for policy in card.policies] == ["root: False, others: True", "PCIe 瓶颈时使用 int 子组"]
    assert card.policies[0].effects == ()
    assert card.control_points[0].name == "reshard_after_forward"
    assert card.preconditions[0].when is None
    assert card.example == (Example(text=Text(en="fully_shard(model, reshard_after_forward=False)")),)
    assert str(card.source_refs[0].note) == "_fully_shard.py:144-161"


def test_an_example_has_a_script_ranks_and_a_refusal() -> None:
    card = read_card(yaml_file.parse(EXAMPLE, "x.yaml"))
    assert card.example == (Example(run="print(1)\n", ranks=2, refused="no device"), Example(text=Text(en="Do not.")))
    assert [ref.lines for ref in card.source_refs] == [(144, 161), (7, 7), None]


@pytest.mark.parametrize("ranks", [0, 9, "two", True])
def test_ranks_of_an_example_are_one_to_eight(ranks: object) -> None:
    _, findings = inspect(yaml_file.parse(EXAMPLE.replace("ranks: 2", f"ranks: {ranks}"), "x.yaml"))
    assert [finding.line for finding in findings] == [6]


@pytest.mark.parametrize("lines", ["161-144", "0-3", "all", "144-"])
def test_lines_of_a_source_are_a_range(lines: str) -> None:
    _, findings = inspect(yaml_file.parse(EXAMPLE.replace("144-161", lines), "x.yaml"))
    assert [finding.line for finding in findings] == [10]


def test_a_card_with_policies_is_read_completely() -> None:
    card = read_card(yaml_file.parse(CARD_TEXT, "x.yaml"))
    law, liked, after = card.policies
    assert card.acts
    assert (card.title.show("zh"), card.title.show("en"), card.intent.show("zh")) == ("标题", "Title", "Why")
    assert law.effects[0].kind is EffectKind.FORBID
    assert [(setting.path, setting.values) for setting in law.effects[0].settings] == [
        ("knobs.recompute", ("none",)),
        ("layout.tp", (4, 8)),
    ]
    assert liked.effects[0].settings == ()
    assert after.phase is Phase.OBSERVE
    change = after.effects[0].settings[0].change
    assert change is not None
    assert change.text == "knobs.micro_batch * 2"
    assert card.control_points[0].changes == "convergence"
    assert card.risks[0].id == "risk-1"
    assert card.cases[0].facts == {"device.memory_bytes": 24 * 2**30, "model.layers": 9}
    assert card.cases[0].candidate == {"layout.tp": 4, "knobs.recompute": "none"}
    assert card.policy("liked") is liked


@pytest.mark.parametrize("effect", ["require", "set", "prefer"])
def test_the_number_of_an_option_can_be_computed_before_a_trial(effect: str) -> None:
    """The number of a knob cannot, since candidates are evaluated as a table of values."""
    text = CARD_TEXT.replace("forbid: {recompute: none, tp: [4, 8]}", f"{effect}: {{bucket_cap_mb: 4 * layout.dp_replicate}}")
    change = read_card(yaml_file.parse(text, "x.yaml")).policies[0].effects[0].settings[0].change
    assert change is not None
    assert change.text == "4 * layout.dp_replicate"
    _, findings = inspect(yaml_file.parse(text.replace("bucket_cap_mb", "micro_batch"), "x.yaml"))
    assert [finding.code for finding in findings] == ["CARD007"]


@pytest.mark.parametrize(
    ("old", "new", "code", "line", "words"),
    [
        ("intent:", "intend:", "CARD018", 6, "unknown field intend; did you mean intent?"),
        ("status: stable", "status: stabel", "CARD002", 4, "did you mean stable?"),
        ("status: stable", "status:", "CARD002", 4, "field status is empty"),
        ("module: tp", "module: [tp]", "CARD002", 5, "a string is needed"),
        ("      because: It is.", "      becuase: It is.", "CARD018", 20, "did you mean because?"),
        ("model.layers > 8", "model.layrs > 8", "CARD003", 15, "did you mean model.layers?"),
        ("observed.peak_memory_bytes", "observed.peak_memory_byte", "CARD003", 12, "did you mean observed.peak_memory_bytes?"),
        ("{device.memory_bytes: 24 GiB,", "{device.memory: 24 GiB,", "CARD003", 29, "did you mean device.memory_bytes?"),
        ("model.layers > 8", "model.layers > 8 GiB", "CARD017", 15, "a plain number and bytes"),
        ("{micro_batch: knobs.micro_batch * 2,", "{micro_batch: 2 GiB,", "CARD017", 24, "a plain number is needed"),
        ("{device.memory_bytes: 24 GiB,", "{device.memory_bytes: 24 s,", "CARD017", 29, "this is s, and bytes is needed"),
        ("model.layers > 8", "model.layers > 'a'", "CARD004", 15, "needs numbers"),
        ("model.layers > 8", "model.layers >", "CARD005", 15, "not an expression"),
        ("model.layers > 8", "true", "CARD005", 15, "true is not an expression"),
        ("id: liked", "id: law", "CARD006", 18, "law appears twice"),
        ("{recompute: none,", "{recompute: nonne,", "CARD007", 16, "did you mean none?"),
        ("{recompute: none,", "{recompte: none,", "CARD007", 16, "did you mean recompute?"),
        ("tp: [4, 8]}", "tp: [4, true]}", "CARD007", 16, "a whole number from 1 on, not True"),
        ("prefer: candidate", "require: candidate", "CARD002", 19, "knobs or axes"),
        ("      phase: observe\n", "", "CARD007", 23, "write phase: observe"),
        ("path: knobs.recompute", "path: knobs.recompite", "CARD008", 10, "did you mean knobs.recompute?"),
        ("expect: forbidden", "expect: forbiden", "CARD002", 30, "did you mean forbidden?"),
        ("candidate: {tp: 4,", "candidate: {tp: 0,", "CARD007", 29, "0 is not a value of layout.tp"),
        ("24 GiB,", "1e30 GiB * 1e30,", "CARD007", 29, "is not a value of device.memory_bytes"),
        ("knobs.recompute: none}}", "knobs.recompute: 3}}", "CARD007", 29, "3 is not a value of knobs.recompute"),
    ],
)
def test_each_fault_has_its_code_and_place(old: str, new: str, code: str, line: int, words: str) -> None:
    assert old in CARD_TEXT
    document = yaml_file.parse(CARD_TEXT.replace(old, new, 1), "x.yaml")
    _, findings = inspect(document)
    found = [finding for finding in findings if words in finding.message or words in finding.do]
    assert found, [str(finding) for finding in findings]
    assert (found[0].code, found[0].line, found[0].path) == (code, line, "x.yaml")
    with pytest.raises(FileError, match=r"^x\.yaml:\d+:\d+: "):
        read_card(document)


def test_a_fault_in_an_expression_has_its_column() -> None:
    document = yaml_file.parse(CARD_TEXT.replace("model.layers > 8", "8 < model.layrs"), "x.yaml")
    finding = inspect(document)[1][0]
    assert (finding.line, finding.column) == (15, 17)


def test_all_faults_of_a_card_are_found_at_once() -> None:
    text = (
        CARD_TEXT.replace("model.layers > 8", "model.layrs > 8")
        .replace("recompute: none,", "recompute: x,")
        .replace("since", "sinse")
    )
    assert [finding.code for finding in inspect(yaml_file.parse(text))[1]] == ["CARD003", "CARD007"]


def test_a_card_without_a_protocol_has_protocol_1() -> None:
    assert read_card(yaml_file.parse("protocol: 1\n" + CARD_TEXT, "x.yaml")) == read_card(yaml_file.parse(CARD_TEXT, "x.yaml"))


def test_a_newer_protocol_is_one_finding() -> None:
    newer = "protocol: 2\n" + CARD_TEXT.replace("intent:", "purpose:")
    _, findings = inspect(yaml_file.parse(newer, "x.yaml"))
    assert [(finding.code, finding.line, finding.column) for finding in findings] == [("CARD002", 1, 11)]
    assert findings[0].message == "protocol 2 is newer than 1, the newest that this strategist reads: upgrade it"


@pytest.mark.parametrize("protocol", ["0", "-1", "1.0", "true", '"1"', "[1]"])
def test_a_protocol_is_a_whole_number(protocol: str) -> None:
    _, findings = inspect(yaml_file.parse(f"protocol: {protocol}\n" + CARD_TEXT, "x.yaml"))
    assert [finding.message.partition(",")[0] for finding in findings] == ["protocol is a whole number such as 1"]


def test_a_flow_is_not_a_card() -> None:
    document = yaml_file.parse("DecisionFlow: {steps: []}", "x.yaml")
    assert inspect(document) == (None, ())
    with pytest.raises(FileError, match="is a DecisionFlow, not a StrategyCard"):
        read_card(document)


@pytest.mark.parametrize("text", NO_CARDS)
def test_a_document_without_a_card_is_refused(text: str) -> None:
    with pytest.raises(FileError):
        read_card(yaml_file.parse(text, "x.yaml"))


def test_the_id_of_a_card_without_one_is_its_file_name(tmp_path: Path) -> None:
    path = tmp_path / "FSDP2-handbook.yaml"
    path.write_text(HANDBOOK, encoding="utf-8")
    assert read_card(yaml_file.load(path)).id == "FSDP2-handbook"
