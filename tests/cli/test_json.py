"""JSON contains everything in the text: the text is rendered from the JSON document alone."""

from pathlib import Path

import pytest

from strategist.cli import render
from strategist.cli.main import main
from strategist.contract import codec
from strategist.contract.answer import Answer
from strategist.contract.explanation import Explanation, WhyNot
from strategist.contract.options import Options
from strategist.contract.plan import Plan
from strategist.report.answer import answer_report
from strategist.report.answer_summary import answer_summary
from strategist.report.explanation import explanation_report, why_not_report

TINY = ["--model", "tiny", "--gpus", "4xcpu", "--seq-len", "128", "--global-batch", "16"]
FLOAT8 = ["--model", "1b", "--gpus", "2x8xH100", "--fix", "float8=tensorwise"]
TOO_LARGE = ["--model", "70b", "--gpus", "1x24GB", "--fix", "offload=none", "--train", "full"]
WORDS = """
StrategyCard:
  id: TEAM-7
  module: precision
  intent: Look at the loss before you trust an option.
  control_points: [{name: compile, path: knobs.compile}]
  policies: [Compare ten steps.]
"""

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def words(tmp_path: Path) -> str:
    """A folder with a card of free text only."""
    (tmp_path / "cards").mkdir()
    (tmp_path / "cards" / "TEAM-7.yaml").write_text(WORDS, encoding="utf-8")
    return str(tmp_path / "cards")


def printed(arguments: list[str], capsys: Captured) -> str:
    capsys.readouterr()
    main(arguments)
    return capsys.readouterr().out


def rendered(report: object, capsys: Captured) -> str:
    capsys.readouterr()
    render.show(report)  # type: ignore[arg-type]
    return capsys.readouterr().out


@pytest.mark.parametrize("request_options", [TINY, FLOAT8, TOO_LARGE], ids=["tiny", "float8", "nothing fits"])
def test_the_text_of_an_answer_is_rendered_from_its_json(request_options: list[str], words: str, capsys: Captured) -> None:
    arguments = ["plan", *request_options, "--cards", words]
    answer = codec.loads(Answer, printed([*arguments, "--json"], capsys))
    assert rendered(answer_summary(answer, ["--cards", words]), capsys) == printed(arguments, capsys)
    assert rendered(answer_report(answer), capsys) == printed([*arguments, "--explain"], capsys)
    assert any("TEAM-7" in line for line in answer.not_as_shipped)


def test_the_text_of_explanations_and_why_not_is_rendered_from_json(tmp_path: Path, words: str, capsys: Captured) -> None:
    file = str(tmp_path / "plan.json")
    answer = codec.loads(Answer, printed(["plan", *FLOAT8, "--cards", words, "-o", file, "--json"], capsys))
    arguments = ["explain", file, "--cards", words]
    explanation = codec.loads(Explanation, printed([*arguments, "--json"], capsys))
    text = printed(arguments, capsys)
    assert rendered(explanation_report(explanation), capsys) == text

    plan = codec.load(Plan, file)
    assert plan == answer.plans[0]
    differing = {decision.setting for decision in explanation.decisions if decision.changes_convergence}
    assert differing == {name.split()[0] for name in answer.changes_convergence} == {"float8"}
    assert "float8 = tensorwise  the trained model may differ" in text
    options = {name for name, value in vars(plan.candidate.options).items() if value != getattr(Options(), name)}
    assert options
    assert options <= {decision.setting for decision in explanation.decisions}
    assert {decision.step for decision in explanation.decisions} <= {step.id for step in explanation.steps}
    assert [advice.card for advice in explanation.advice] == ["TEAM-7"]
    assert explanation.advice[0].texts == ("Compare ten steps.",)

    command = [*arguments, "--why-not", "compile=false"]
    alternative = codec.loads(WhyNot, printed([*command, "--json"], capsys))
    assert rendered(why_not_report(plan, alternative), capsys) == printed(command, capsys)
