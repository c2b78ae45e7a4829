"""The progress line of a training, shortened for narrow terminals."""

import pytest
from executors.conftest import plan  # noqa: F401 - a fixture

from strategist.cli import render
from strategist.cli.training_progress import TrainingProgress
from strategist.contract.plan import Plan
from strategist.contract.progress import Progress, Stage

LATEST = {"loss": 5.791, "grad_norm": 4.532, "evaluation_loss": 6.274, "seconds": 0.02, "memory_bytes": 62.3 * 2**20}


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (120, "loss 5.791, gradient norm 4.532, evaluation loss 6.274, 3,200 tokens/s, MFU 44%, 62.3 MiB, 160 ms left"),
        (75, "loss 5.791, 3,200 tokens/s, MFU 44%, 62.3 MiB, 160 ms left"),
        (68, "loss 5.791, 3,200 tokens/s, MFU 44%, 160 ms left"),
        (20, "loss 5.791, 160 ms left"),
    ],
)
def test_a_narrow_terminal_drops_whole_figures_but_keeps_the_time_left(
    plan: Plan,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    width: int,
    shown: str,
) -> None:
    monkeypatch.setattr(render, "has_screen", lambda: True)
    monkeypatch.setattr(render, "status_width", lambda: width)
    stage = Stage(units="steps", total=12)
    TrainingProgress(plan, stage, 10.0, training=True).take(
        Progress(phase="measure", step=3, elapsed_seconds=1.0, latest=LATEST)
    )  # fmt: skip
    assert (stage.done, stage.note) == (4, shown)
