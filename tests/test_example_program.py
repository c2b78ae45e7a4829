"""The example of docs/programs.md: a user's training script, tuned with real torch ranks."""

from pathlib import Path

import pytest

from strategist import api
from strategist.contract.measurement import Outcome, TrialSettings
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.tuner.limits import Limits

PROGRAM = Path(__file__).parents[1] / "examples" / "program" / "program.yaml"


@pytest.mark.torch
@pytest.mark.timeout(180)
def test_a_users_training_script_is_tuned(tmp_path: Path) -> None:
    workload = Workload(seq_len=32, global_batch=4, precision="fp32")
    request = Request(model="tiny", gpus="2xcpu", workload=workload, backend=str(PROGRAM), fix={"recompute": "full"})
    result = api.tune(
        request, study=tmp_path / "study", limits=Limits(trials=1, confirm=0), settings=TrialSettings(steps=3, warmup_steps=1)
    )
    (trial,) = result.trials
    assert trial.measurement is not None
    assert trial.measurement.outcome is Outcome.OK, trial.measurement.evidence
    assert trial.measurement.steps_measured == 3
    assert len(trial.measurement.losses) == 4
    assert "--recompute" in api.command(api.program(str(PROGRAM)), trial.plan)
