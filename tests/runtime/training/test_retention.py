"""Checkpoint retention: the newest, and the best by evaluation loss."""

import pytest
from strategist_runtime.training.retention import best, checkpoints_to_remove

from strategist.contract import checkpoint, codec
from strategist.contract.checkpoint import Training
from strategist.contract.measurement import TrialSettings
from strategist.contract.workload import Workload

from ..plans import TINY

pytestmark = pytest.mark.torch

LOSSES = {2: 3.0, 4: 1.0, 6: None, 8: 1.0, 10: 2.0, 12: 5.0}
"""Evaluation losses by step; one checkpoint was not evaluated."""


@pytest.fixture
def folder(tmp_path):
    for step, loss in LOSSES.items():
        path = tmp_path / checkpoint.name_of(step)
        path.mkdir()
        training = Training(
            step=step, samples=8 * step, settings=TrialSettings(), model=TINY, workload=Workload(), plan_id="p", ranks=1, files={},
            evaluation_loss=loss,
        )  # fmt: skip
        codec.save(training, path / checkpoint.DESCRIPTION)
    return tmp_path


def steps(paths):
    return [checkpoint.step_of(path) for path in paths]


@pytest.mark.parametrize(
    ("keep", "keep_best", "removed"),
    [(2, 0, [2, 4, 6, 8]), (2, 1, [2, 6, 8]), (1, 2, [2, 6, 10]), (1, 9, [6]), (6, 0, []), (9, 1, [])],
)
def test_checkpoints_that_are_neither_newest_nor_best_are_removed(folder, keep, keep_best, removed):
    assert steps(checkpoints_to_remove(folder, 12, keep, keep_best)) == removed


def test_among_equal_losses_the_older_checkpoint_is_best_and_damaged_ones_are_ignored(folder):
    assert steps(best(folder, 3)) == [4, 8, 10]
    (folder / checkpoint.name_of(4) / checkpoint.DESCRIPTION).write_text("{", encoding="utf-8")
    assert steps(best(folder, 1)) == [8]
    assert steps(checkpoints_to_remove(folder, 12, 2, 1)) == [2, 4, 6]


def test_later_checkpoints_are_not_removed(folder):
    assert steps(checkpoints_to_remove(folder, 8, 1)) == [2, 4, 6]
