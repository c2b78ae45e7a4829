"""Ranks crashed by torch's own code are retried once with a warning; other failures are not retried."""

import warnings

import pytest

from .launch import forked, torchrun

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]


@pytest.mark.parametrize(("start", "end"), [(forked, "SIGSEGV"), pytest.param(torchrun, "SIGABRT", marks=pytest.mark.full)])
def test_a_rank_crashed_by_torch_is_retried_once(start, end, tmp_path):
    with pytest.warns(UserWarning, match=f"falling_rank .* ended by {end}, retried"):
        done = start(1, ["runtime.falling_rank", str(tmp_path / "starts"), end])
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "starts").read_text(encoding="utf-8").splitlines()) == 2


def test_a_rank_that_exits_with_an_error_is_not_retried(tmp_path):
    with warnings.catch_warnings(action="error"):
        done = forked(1, ["runtime.falling_rank", str(tmp_path / "starts"), "exit"])
    assert done.returncode == 1
    assert len((tmp_path / "starts").read_text(encoding="utf-8").splitlines()) == 1
