"""Other estimators beside the project's own: benchmarks/peers.py."""

import importlib.util
import sys
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("peers", Path(__file__).parents[1] / "benchmarks" / "peers.py")
assert spec is not None
assert spec.loader is not None
peers = importlib.util.module_from_spec(spec)
sys.modules["peers"] = peers
spec.loader.exec_module(peers)


def test_an_estimator_that_cannot_be_installed_says_why_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "FOLDER", tmp_path)
    missing = peers.Estimator(name="missing", script="", packages=(str(tmp_path / "missing-1.0-py3-none-any.whl"),))
    for _ in range(2):
        with pytest.raises(peers.CommandError, match=r"missing-1\.0"):
            missing.install()


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(peers.CommandError, match="no-such-program: No such file"):
        peers.output_of(["no-such-program"])
