"""Files of a stand-in rank, as the contract has them: settings, records and checkpoints."""

import os
from pathlib import Path

from strategist.contract import checkpoint, codec
from strategist.contract.checkpoint import Training
from strategist.contract.measurement import Outcome, RankRecord, TrialSettings
from strategist.contract.plan import Plan


def load_settings(path: Path) -> TrialSettings:
    return codec.load(TrialSettings, path)


def record(rank: int, outcome: str, **figures: object) -> str:
    """The text of a rank's record."""
    return codec.dumps(RankRecord(rank=rank, outcome=Outcome(outcome), **figures))


def save_record(folder: Path, rank: int, outcome: str, **figures: object) -> None:
    codec.save(RankRecord(rank=rank, outcome=Outcome(outcome), **figures), folder / f"rank-{rank}.json")


def number_of_ranks(folder: Path) -> int:
    return codec.load(Plan, folder / "plan.json").candidate.layout.world_size


def saved_steps(settings: TrialSettings) -> int:
    """The step of the newest checkpoint."""
    found = checkpoint.newest(settings.save)
    return found[1].step if found else 0


def save_checkpoint(folder: Path, settings: TrialSettings, step: int) -> None:
    """Saves a checkpoint without data, unless there is one of this step."""
    plan, place = codec.load(Plan, folder / "plan.json"), Path(settings.save)
    training = Training(
        step=step, samples=0, settings=settings, model=plan.model, workload=plan.workload, plan_id=plan.id, ranks=0, files={}
    )
    draft = place / f"{checkpoint.name_of(step)}.{os.getpid()}{checkpoint.PARTIAL}"
    draft.mkdir(parents=True, exist_ok=True)
    codec.save(training, draft / checkpoint.DESCRIPTION)
    if not (place / checkpoint.name_of(step)).exists():
        draft.rename(place / checkpoint.name_of(step))
