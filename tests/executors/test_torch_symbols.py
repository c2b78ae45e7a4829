"""References of cards to torch symbols, resolved for the linter."""

import pytest

from strategist.cards.card import Card
from strategist.cards.reader import read_card
from strategist.contract.card_example import ScriptOutcome
from strategist.contract.torch_symbol import ReferenceOutcome
from strategist.errors import InputError
from strategist.executors.lint_environment import inspect_environment
from strategist.executors.torch_symbols import look_up, sources
from strategist.files import yaml_file

CARD = """\
StrategyCard:
  module: tp
  intent: Why
  source_refs:
    - {symbol: torch.nn.Linear, parameter: in_features}
    - {symbol: torch.nn.Linear, parameter: in_features, lines: 1-2}
    - {symbol: torch.nn.Lineer}
    - {url: "https://a"}
    - words
  example:
    - words
    - run: |
        assert True
    - run: |
        x = 1
        assert False, x
    - {run: raise OSError("no device"), refused: no device}
"""


def card() -> Card:
    return read_card(yaml_file.parse(CARD, "a.yaml"))


def test_each_symbol_is_resolved_once() -> None:
    assert sources([card(), card()]) == (("torch.nn.Linear", "in_features"), ("torch.nn.Lineer", ""))


@pytest.mark.full
@pytest.mark.torch
def test_the_environment_has_resolved_symbols_and_example_results() -> None:
    environment = inspect_environment([card()], look_up_sources=True, run_the_examples=True)
    assert environment.torch_version
    assert {key: found.outcome for key, found in environment.references.items()} == {
        ("torch.nn.Linear", "in_features"): ReferenceOutcome.FOUND,
        ("torch.nn.Lineer", ""): ReferenceOutcome.NO_SYMBOL,
    }
    assert {index: (result.outcome, result.message) for (_, index), result in environment.examples.items()} == {
        1: (ScriptOutcome.PASSED, ""),
        2: (ScriptOutcome.FAILED, "AssertionError: 1"),
        3: (ScriptOutcome.REFUSED, "OSError: no device"),
    }


def test_the_environment_is_empty_without_a_request() -> None:
    environment = inspect_environment([card()], look_up_sources=False, run_the_examples=False)
    assert (environment.torch_version, dict(environment.references), dict(environment.examples)) == ("", {}, {})


@pytest.mark.torch
def test_a_broken_torch_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('broken torch')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(InputError, match="torch: cannot be looked up: ImportError: broken torch; repair the installation"):
        look_up([("torch.nn.Linear", "")])
