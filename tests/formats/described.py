"""What a file describes, with its findings, for tests that need no price: pricing takes most of the time of an import."""

from pathlib import Path
from typing import Any

from strategist.contract.review import Review
from strategist.contract.settings import value_of
from strategist.formats.completed_config import GivenValues, Setup, setup
from strategist.formats.config_reader import read


def described(path: Path | str, given: GivenValues) -> Setup:
    """The setup that a file describes, completed with the given values."""
    source, _, parsed = read(path)
    return setup(source, parsed, given)


def setting(found: Setup, name: str) -> Any:
    """A setting of a setup that breaks no law."""
    situation = found.situation
    assert not found.candidate.violations(situation.model, situation.request.workload, situation.cluster.devices)
    return value_of(found.candidate, name)


def codes(found: Setup | Review) -> dict[str, str]:
    """Messages of the findings by code, without those on assumed values, memory and laws of cards."""
    return {item.code: item.message for item in found.findings if item.code not in ("FMT-003", "FMT-005", "FMT-006", "FMT-010")}
