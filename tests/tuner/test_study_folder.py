"""Owners of trials in a study's folder."""

import subprocess
import sys
from pathlib import Path

from postgres_server import postgres_full_only

from strategist.contract.measurement import Outcome
from strategist.contract.study import TrialState
from strategist.ledger.ledger import Ledger
from strategist.tuner.study_folder import owner, release_abandoned
from tuner.studies import tuned


@postgres_full_only
def test_only_trials_of_dead_processes_of_this_machine_are_released(tmp_path: Path, server: str) -> None:
    program = "from strategist.tuner.study_folder import owner; print(owner())"
    gone = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    machine, _, process = gone.partition(" ")
    elsewhere = f"{machine[:-1]}{'0' if machine[-1] != '0' else '1'} {process}"  # another machine with the same name
    with Ledger.open(tuned(tmp_path / "study", 1, server=server)) as ledger:
        for holder in (owner(), gone, elsewhere):
            ledger.enqueue(holder, ledger.trials()[0].plan_json, "test")
            assert ledger.claim(holder, 1000.0) is not None
        release_abandoned(ledger)
        assert [trial.state for trial in ledger.trials()[1:]] == [TrialState.RUNNING, TrialState.QUEUED, TrialState.RUNNING]
        assert ledger.trials()[2].attempts[0].outcome is Outcome.LOST
