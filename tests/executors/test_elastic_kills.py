"""An elastic training whose processes are killed at random: it ends, and names the dead."""

import json
import os
import random
import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from chaos import Chaos
from executors.stand_in import SAVE_EVERY
from executors.test_elastic import on_devices

from strategist.api import BACKEND, load_cards
from strategist.contract import codec
from strategist.contract.measurement import Measurement, Outcome, TrialSettings
from strategist.contract.plan import Plan
from strategist.executors import processes
from strategist.executors.local import LocalExecutor
from strategist.tuner.elastic import Shrink, train

RANKS = 4
ABOVE = ("launcher", "keeper of the trial")
KINDS = ("trainer", "keeper", "trainer and keeper", "two trainers", "two keepers", *ABOVE)
ALL = frozenset(range(RANKS))
"""The ranks that what is above them takes along."""


@dataclass(eq=False)
class Killer(threading.Thread):
    """Kills processes of this process's trainings, each time after a while that is drawn."""

    chances: random.Random
    kinds: Counter[str] = field(default_factory=Counter)
    meant: dict[str, list[frozenset[int]]] = field(default_factory=lambda: defaultdict(list))
    """By part, for which ranks each kill stands."""

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(self.chances.uniform(0.0, 1.5)):
            self.strike(self.chances.choice(KINDS))

    def strike(self, kind: str) -> None:
        found = running()
        ranks = sorted({rank for role, rank, _ in found if role == "keeper"})
        if not ranks:
            return
        chosen = self.chances.sample(ranks, min(len(ranks), 2 if kind.startswith("two") else 1))
        above = kind in ABOVE
        roles = {kind} if above else {role for role in ("trainer", "keeper") if role in kind}
        victims = [process for (role, rank, _), process in found.items() if role in roles and (above or rank in chosen)]
        part = next(part for role, _, part in found)
        self.meant[part].append(ALL if above else frozenset(chosen))
        self.kinds[kind] += 1
        for process in victims:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def running() -> dict[tuple[str, int, str], int]:
    """Processes of the parts that this process runs: role, rank and part of each."""
    found = {}
    for process, tag in processes.tagged("kills.").items():
        if tag.split(".")[1] != str(os.getpid()):
            continue
        with suppress(OSError, StopIteration):
            words = Path(f"/proc/{process}/cmdline").read_text().split("\0")
            variables = Path(f"/proc/{process}/environ").read_text().split("\0")
            rank = next((int(item[5:]) for item in variables if item.startswith("RANK=")), -1)
            part = next(word for word in words if "part-" in word)
            path = Path(part) if Path(part).name.startswith("part-") else Path(part).parent
            kept = "strategist.executors.process_supervisor" in words
            role = ("keeper" if words[3] == "rank" else "keeper of the trial") if kept else "launcher" if rank < 0 else "trainer"
            found[role, rank, str(path)] = process
    return found


def steps(part: Path) -> list[int]:
    path = part / "progress.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["step"] for line in lines if line.endswith("}")]


def named_wrongly(part: Path, meant: list[frozenset[int]]) -> bool:
    """Whether ranks are named that were not killed; or none where some were."""
    measurement = codec.load(Measurement, part / "measurement.json")
    lost, ranks = set(measurement.lost_ranks), frozenset(range(codec.load(Plan, part / "plan.json").candidate.layout.world_size))
    if measurement.outcome is Outcome.OK:
        return bool(lost)
    return not lost or not lost <= (frozenset().union(*meant) & ranks)


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.chaos("Trials", "an elastic training under SIGKILL of whichever of its processes, at random moments")
def test_whatever_is_killed_at_random(
    make_executor: Callable[..., LocalExecutor], plan: Plan, tmp_path: Path, chaos: Chaos
) -> None:
    chances, deck, wrong, repeated, kinds, trainings = chaos.random(), load_cards(), [], [0], Counter[str](), 0
    while kinds.total() < chaos.size(3, 200) and chaos.more():
        folder = tmp_path / f"{trainings}"
        trainings += 1
        settings = TrialSettings(
            steps=4, total_steps=120, max_restarts=1, elastic=True, save=str(folder / "save"), wall_timeout_seconds=None
        )
        heard: list[Shrink] = []
        killer = Killer(random.Random(chances.random()))
        killer.start()
        measurement = train(
            on_devices(plan, RANKS), folder, settings, deck=deck, executor=make_executor("trains", "kills"), backend=BACKEND,
            on_shrink=heard.append,
        )  # fmt: skip
        killer.over.set()
        killer.join()
        parts = [folder / f"part-{number}" for number in range(len(heard) + 1)]
        wrong += [part for part in parts if named_wrongly(part, killer.meant[str(part)])]
        reached = 0
        for part, shrink in zip(parts, (None, *heard), strict=True):
            if done := steps(part):
                repeated.append(reached - done[0])
                assert shrink is None or done[0] == shrink.step
                reached = max(done) + 1
        assert measurement.outcome is Outcome.OK or len(heard) >= 4, measurement
        kinds += killer.kinds
    assert not wrong
    assert max(repeated) <= SAVE_EVERY
    said = ", ".join(
        f"{count} of a {kind}" if not kind.startswith("two") else f"{count} of {kind}" for kind, count in kinds.items()
    )
    chaos.found(
        f"{kinds.total()} kills ({said}) in {trainings} trainings of {RANKS} stand-in ranks, saved every {SAVE_EVERY} steps"
    )
    chaos.found(f"0 stuck, {len(wrong)} wrong names, at most {max(repeated)} steps repeated")
