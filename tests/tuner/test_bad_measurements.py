"""An impossible measurement is never the best of a study, however fast its steps."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from chaos import Chaos
from executors.conftest import STAND_IN, StandInEngine

from strategist.contract import codec
from strategist.contract.measurement import Measurement, Outcome, RankRecord, TrialSettings
from strategist.contract.plan import Plan
from strategist.executors.executor import OnEvent, TrialRunner
from strategist.executors.local import LocalExecutor
from strategist.tuner.limits import Limits
from strategist.tuner.tune import tune
from tuner.studies import DECK, REQUEST

SETTINGS = TrialSettings(steps=4, init_timeout_seconds=30.0, step_timeout_seconds=30.0, wall_timeout_seconds=60.0)
KINDS = (
    "NaN", "Infinity", "-Infinity", "0.0", "-0.0001", "1e999", '"fast"', "null", "true", "[]", "1e9", "1e-400", "no steps",
    "no record", "truncated", "of another rank", "of another plan", "no memory", "negative memory", "not done", "another type",
    "a later version",
)  # fmt: skip
FALSE_RECORDS = [f"false-record-{who}{kind}" for kind in KINDS for who in ("", "all-")]


@dataclass(frozen=True, kw_only=True)
class FaultyExecutor:
    """Runs each trial with the next of the ``faults``, and without a fault when none is left; folders contain stale records."""

    faults: Iterator[str]
    suffered: dict[int, str] = field(default_factory=dict)

    def execute(self, plan: Plan, folder: Path, settings: TrialSettings, on_event: OnEvent | None = None) -> Measurement:
        folder.mkdir(parents=True)
        for rank in range(2):
            stale = RankRecord(rank=rank, outcome=Outcome.OK, phase="done", step_seconds=(1e-4,) * 4, peak_memory_bytes=1)
            codec.save(stale, folder / f"rank-{rank}.json")
        fault = next(self.faults, "well")
        self.suffered[int(folder.name.split("-")[0])] = fault
        executor = LocalExecutor(study="faulty", engine=StandInEngine(), program=(sys.executable, STAND_IN, "rank", fault))
        return executor.execute(plan, folder, settings, on_event)

    def preflight(self, plan: Plan) -> None:
        """Any plan runs."""


@pytest.mark.chaos("Trials", "an impossible measurement is never ranked best")
def test_an_impossible_measurement_is_never_ranked_best(tmp_path: Path, chaos: Chaos) -> None:
    records = chaos.random().sample(FALSE_RECORDS, 1) if not chaos.weekly else FALSE_RECORDS * 2
    accepted, count = [], 0
    request = replace(REQUEST, gpus="2xcpu")
    for number, start in enumerate(range(0, len(records), 8)):
        some = [*records[start : start + 8], "leaves-nothing"]
        chaos.random().shuffle(some)
        executor_of_faults = FaultyExecutor(faults=iter([*some, "well"]))
        result = tune(
            request, study=tmp_path / f"{number}", limits=Limits(trials=len(some) + 1, confirm=0),
            runner=TrialRunner(executor=executor_of_faults, settings=SETTINGS),
            deck=DECK,
        )  # fmt: skip
        count += len(some)
        assert result.best is not None
        assert executor_of_faults.suffered[result.best.number] == "well"
        accepted += [
            (executor_of_faults.suffered[trial.number], trial.measurement)
            for trial in result.trials
            if executor_of_faults.suffered[trial.number] != "well" and trial.measurement.outcome is not Outcome.BAD_MEASUREMENT
        ]
    assert not accepted
    chaos.found(f"{count} trials with records of {len(FALSE_RECORDS)} impossible kinds, and stale records in their folders")
    chaos.found(f"{len(accepted)} accepted, 0 ranked best")
