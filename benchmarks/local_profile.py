"""How near predicted steps are to measured ones with the shipped figures of a CPU, and with those that strategist profile measured
here just before: python benchmarks/local_profile.py"""

from math import exp, log
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from strategist import api
from strategist.contract.measurement import TrialSettings
from strategist.contract.plan import Plan
from strategist.contract.request import Request
from strategist.contract.workload import Workload
from strategist.planning import planner
from strategist.profiles.situation import situation

WORKLOAD = Workload(seq_len=256, global_batch=8)
LAYOUTS = ({"dp_replicate": 2}, {"dp_shard": 2}, {"tp": 2})
SETTINGS = TrialSettings(steps=8)


def plan(gpus: str, layout: dict[str, int], like: Plan | None = None) -> Plan:
    """The best plan of a layout, or that of the candidate of another plan, priced on these GPUs."""
    request = Request(model="tiny", gpus=gpus, workload=WORKLOAD, backend=api.BACKEND, fix=dict(layout))
    if like is None:
        return api.plan(request, top=1).plans[0]
    return planner.price_candidate(situation(request), like.candidate, deck=api.load_cards())


def main() -> None:
    """A line for each layout, and the mean factor by which each kind of prediction is off."""
    off: dict[str, list[float]] = {"shipped": [], "profiled": []}
    with TemporaryDirectory() as name:
        here, record = api.profile_machine(Path(name) / "here.yaml", ranks=2, cpu=True)
        print(f"profiled in {record.wall_seconds:.1f} s")
        for number, layout in enumerate(LAYOUTS):
            shipped = plan("2xcpu", layout)
            profiled = plan(str(here), layout, like=shipped)
            measured = api.run(profiled, Path(name) / str(number), SETTINGS).step_seconds
            if measured is None:
                raise SystemExit(f"{layout}: the trial did not end well")
            for kind, predicted in (("shipped", shipped), ("profiled", profiled)):
                off[kind].append(abs(log(predicted.estimate.step_seconds / measured)))
            steps = [each.estimate.step_seconds * 1e3 for each in (shipped, profiled)]
            print(
                f"{layout}: measured {measured * 1e3:.0f} ms, predicted {steps[0]:.0f} ms as shipped, {steps[1]:.0f} ms as profiled"
            )
    for kind, logs in off.items():
        print(f"{kind}: off by a factor of {exp(fmean(logs)):.2f} in the mean")


if __name__ == "__main__":
    main()
