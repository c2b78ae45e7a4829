"""A stand-in executor, deterministic and quick; as a program a complete tuner that tests can kill."""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from strategist.cards.deck import load_deck
from strategist.contract.estimate import Estimate
from strategist.contract.measurement import Evidence, Kind, Measurement, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.progress import Progress
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.cost.calibration import NEUTRAL
from strategist.cost.price import price
from strategist.executors.executor import OnEvent, TrialRunner
from strategist.expr.columns import row_of, table
from strategist.paths import data_dir
from strategist.tuner.limits import Limits
from strategist.tuner.tune import tune

REQUEST = Request(
    model="tiny", gpus="4xcpu", workload=Workload(seq_len=128, global_batch=16, precision="fp32"),
    fix={"micro_batch": 2, "pp": 1, "reshard_after_forward": True, "offload": "none", "compile": False},
)  # fmt: skip
"""A request with two hundred candidates, all of which are ranked after each trial."""

SETTINGS = TrialSettings(steps=2)


def truth(plan: Plan) -> Estimate:
    """The true estimate of a plan in the stand-in: uncalibrated."""
    columns = table([row_of(plan.candidate, plan.accumulation)])
    return price(plan.model, plan.cluster, plan.workload, columns, NEUTRAL).estimate(0)


@dataclass(frozen=True, kw_only=True)
class StandIn:
    """Steps take ``slowness`` times the uncalibrated estimate plus 10 ms; peaks from ``oom_bytes`` on are out of memory.
    ``seen`` replaces figures of the measurement, ``crashes`` selects plans that crash, and ``luck`` multiplies the seconds of the
    trial in a folder. An event is sent after each step.

    Writes ``begun`` and ``ended`` in the trial's folder; ``before`` is called in between.
    """

    slowness: float = 1.0
    oom_bytes: float = float("inf")
    outcome: Outcome = Outcome.OK
    trial_seconds: float = 0.0
    before: Callable[[Path], None] | None = None
    seen: Mapping[str, Any] = field(default_factory=dict)
    crashes: Callable[[Plan], bool] = lambda plan: False
    luck: Callable[[Path], float] = lambda folder: 1.0

    def execute(self, plan: Plan, folder: Path, settings: TrialSettings, on_event: OnEvent | None = None) -> Measurement:
        folder.mkdir(parents=True)
        (folder / "begun").touch()
        if self.before is not None:
            self.before(folder)
        time.sleep(self.trial_seconds)
        estimate = truth(plan)
        seconds = (0.01 + self.slowness * estimate.step_seconds) * self.luck(folder)
        for step in range(1, settings.steps + 1 if on_event else 0):
            on_event(Progress(phase="measure", step=step, elapsed_seconds=0.0, step_seconds=(seconds,) * step))
        (folder / "ended").touch()
        outcome = Outcome.OOM if estimate.peak_memory_bytes >= self.oom_bytes else self.outcome
        outcome = Outcome.CRASH if self.crashes(plan) else outcome
        if outcome is not Outcome.OK:
            return Measurement(plan_id=plan.id, kind=Kind.REAL, outcome=outcome, evidence=Evidence(message="no memory free"))
        measured = Measurement(
            plan_id=plan.id, kind=Kind.REAL, outcome=outcome, step_seconds=seconds, steps_measured=settings.steps, mfu=0.1,
            tokens_per_second=plan.workload.tokens_per_step / seconds, peak_memory_bytes=(int(estimate.peak_memory_bytes),) * 4,
            comm_ratio=0.1, exposed_comm_ratio=0.1, wall_seconds=0.1,
        )  # fmt: skip
        return replace(measured, **self.seen)

    def preflight(self, plan: Plan) -> None:
        """Any plan runs."""


def wait_for_tuners(study: Path, tuners: int) -> None:
    """Waits until each tuner has started a trial."""
    while len([*study.rglob("begun")]) < tuners:
        time.sleep(0.01)


if __name__ == "__main__":
    study, trials, trial_seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    executor = StandIn(trial_seconds=trial_seconds, before=lambda _: wait_for_tuners(study, int(sys.argv[5])))
    deck, limits = load_deck(data_dir("cards")), Limits(trials=trials, confirm=0)
    tune(
        REQUEST, study=study, limits=limits, runner=TrialRunner(executor=executor, settings=SETTINGS), deck=deck, server=sys.argv[4]
    )
