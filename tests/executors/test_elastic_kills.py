"""An elastic training whose processes are killed at random ends, and names the killed ranks."""

import json
import os
import random
import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
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
from strategist.tuner.elastic import MAX_FRUITLESS_RESTARTS, Shrink, train

RANKS = 4
ABOVE = ("launcher", "trial supervisor")
KINDS = ("trainer", "supervisor", "trainer and supervisor", "two trainers", "two supervisors", *ABOVE)
ALL = frozenset(range(RANKS))
"""The ranks that end with an ancestor."""

SETTINGS = TrialSettings(steps=4, max_restarts=1, elastic=True, save_every=SAVE_EVERY, wall_timeout_seconds=None)
REAL_STEPS = 200
LAYOUTS: tuple[dict[str, object], ...] = (
    {},
    {"pp": 2, "dp_shard": 2, "no_sync": True},
    {"tp": 2, "dp_shard": 2, "checkpoint": "async"},
    {"dp_replicate": 4, "dp_shard": 1, "checkpoint": "async"},
)


@dataclass(eq=False)
class Killer(threading.Thread):
    """Kills processes of this process's trainings at random intervals; if ``patient``, mostly after the part's first step."""

    chances: random.Random
    most_seconds: float = 1.5
    patient: bool = False
    kinds: Counter[str] = field(default_factory=Counter)
    meant: dict[str, list[frozenset[int]]] = field(default_factory=lambda: defaultdict(list))
    """By part, the ranks that each kill affects."""

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(self.chances.uniform(0.0, self.most_seconds)):
            if self.patient and self.chances.random() < 0.8:
                while not any(steps(Path(part)) for _, _, part in running()) and not self.over.wait(0.2):
                    pass
                self.over.wait(self.chances.uniform(0.0, self.most_seconds))
            self.kill_processes(self.chances.choice(KINDS))

    def kill_processes(self, kind: str) -> None:
        found = running()
        ranks = sorted({rank for role, rank, _ in found if role == "supervisor"})
        if not ranks:
            return
        chosen = self.chances.sample(ranks, min(len(ranks), 2 if kind.startswith("two") else 1))
        above = kind in ABOVE
        roles = {kind} if above else {role for role in ("trainer", "supervisor") if role in kind}
        victims = [process for (role, rank, _), process in found.items() if role in roles and (above or rank in chosen)]
        part = next(part for role, _, part in found)
        self.meant[part].append(ALL if above else frozenset(chosen))
        self.kinds[kind] += 1
        for process in victims:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def running() -> dict[tuple[str, int, str], int]:
    """Process ids of the running parts, by role, rank and part."""
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
            role = ("supervisor" if words[3] == "rank" else "trial supervisor") if kept else "launcher" if rank < 0 else "trainer"
            found[role, rank, str(path)] = process
    return found


def steps(part: Path) -> list[int]:
    path = part / "progress.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line)["step"] for line in lines if line.endswith("}")]


def named_wrongly(part: Path, meant: list[frozenset[int]]) -> bool:
    """Whether a rank is named that was not killed, or none although one was killed."""
    measurement = codec.load(Measurement, part / "measurement.json")
    lost, ranks = set(measurement.lost_ranks), frozenset(range(codec.load(Plan, part / "plan.json").candidate.layout.world_size))
    if measurement.outcome is Outcome.OK:
        return bool(lost)
    return not lost or not lost <= (frozenset().union(*meant) & ranks)


@dataclass
class Deaths:
    """Results of trainings under kills."""

    wrong: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    repeated: int = 0
    by_hand: int = 0
    deviation: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: "Deaths") -> "Deaths":
        return Deaths(
            wrong=self.wrong + other.wrong, stuck=self.stuck + other.stuck, repeated=max(self.repeated, other.repeated),
            by_hand=self.by_hand + other.by_hand, deviation=max(self.deviation, other.deviation), kinds=self.kinds + other.kinds,
        )  # fmt: skip

    def train(self, plan: Plan, folder: Path, settings: TrialSettings, executor: LocalExecutor, killer: Killer) -> bool:
        """Runs an elastic training while ``killer`` runs; whether it reached its last step."""
        shrinks: list[Shrink] = []
        killer.start()
        measurement = train(
            plan, folder, settings, deck=load_cards(), executor=executor, backend=BACKEND, on_shrink=shrinks.append
        )  # fmt: skip
        killer.over.set()
        killer.join()
        parts, reached = [folder / f"part-{number}" for number in range(len(shrinks) + 1)], 0
        for part, shrink in zip(parts, (None, *shrinks), strict=True):
            if done := steps(part):
                self.repeated = max(self.repeated, reached - done[0])
                assert shrink is None or done[0] == shrink.step
                reached = max(done) + 1
        self.wrong += [str(part) for part in parts if named_wrongly(part, killer.meant[str(part)])]
        self.stuck += [str(part) for part in parts if codec.load(Measurement, part / "measurement.json").outcome is Outcome.TIMEOUT]
        self.kinds += killer.kinds
        assert measurement.outcome is Outcome.OK or len(shrinks) >= MAX_FRUITLESS_RESTARTS - 1, measurement
        return measurement.outcome is Outcome.OK

    def figures(self) -> tuple[str, str]:
        """The kills, and their results, as text."""
        kinds = (f"{count} of {'' if kind.startswith('two') else 'a '}{kind}" for kind, count in sorted(self.kinds.items()))
        found = f"{len(self.stuck)} stuck, {len(self.wrong)} wrong names, at most {self.repeated} steps repeated"
        return f"{self.kinds.total()} kills ({', '.join(kinds)})", found


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.chaos("Trials", "an elastic training under SIGKILL of any of its processes at random moments")
def test_an_elastic_training_survives_random_kills(
    make_executor: Callable[..., LocalExecutor], plan: Plan, tmp_path: Path, chaos: Chaos
) -> None:
    chances, deaths, trainings = chaos.random(), Deaths(), 0
    while deaths.kinds.total() < chaos.size(3, 200) and chaos.more():
        folder = tmp_path / f"{trainings}"
        trainings += 1
        settings = replace(SETTINGS, total_steps=120, save=str(folder / "save"))
        killer = Killer(random.Random(chances.random()))
        deaths.train(on_devices(plan, RANKS), folder, settings, make_executor("trains", "kills"), killer)
    kills, found = deaths.figures()
    assert not deaths.wrong
    assert deaths.repeated <= SAVE_EVERY
    chaos.found(f"{kills} in {trainings} trainings of {RANKS} stand-in ranks, saved every {SAVE_EVERY} steps")
    chaos.found(found)


def read(line: str) -> Deaths:
    """Results of an earlier call."""
    found = Deaths(**json.loads(line))
    found.kinds = Counter(found.kinds)
    return found


def losses(log: Path) -> list[float]:
    """One loss per step, in order."""
    rows = [json.loads(line) for line in (log / "curves.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["step"] for row in rows] == list(range(REAL_STEPS))
    return [row["loss"] for row in rows]


@pytest.mark.weekly
@pytest.mark.torch
@pytest.mark.timeout(7200)
@pytest.mark.chaos("Trials", "losses of trainings by torchrun and gloo under SIGKILL of any of their processes")
def test_real_ranks_killed_at_random_have_the_losses_of_undisturbed_ranks(plan: Plan, tmp_path: Path, chaos: Chaos) -> None:
    chances, executor, place = chaos.random(), LocalExecutor(study="kills"), chaos.kept or tmp_path
    alone = replace(SETTINGS, elastic=False, total_steps=REAL_STEPS, log=str(place / "undisturbed"))
    if not (place / "undisturbed" / "measurement.json").exists():
        assert executor.execute(on_devices(plan, 1), place / "undisturbed", alone).outcome is Outcome.OK
    expected, book = losses(place / "undisturbed"), place / "trainings.jsonl"
    deaths = [read(line) for line in book.read_text(encoding="utf-8").splitlines()] if book.exists() else []
    while sum(deaths, Deaths()).kinds.total() < 200 and chaos.more():
        folder, found = place / f"{len(deaths)}", Deaths()
        given = on_devices(plan, RANKS, **LAYOUTS[len(deaths) % len(LAYOUTS)])
        settings = replace(alone, elastic=True, save=str(folder / "save"), log=str(folder / "log"))
        while not found.train(given, folder, settings, executor, Killer(random.Random(chances.random()), 6.0, patient=True)):
            found.by_hand += 1
        found.deviation = max(abs(loss / other - 1) for loss, other in zip(losses(folder / "log"), expected, strict=True))
        deaths.append(found)
        with book.open("a", encoding="utf-8") as file:
            file.write(json.dumps(vars(found)) + "\n")
    total = sum(deaths, Deaths())
    kills, figures = total.figures()
    chaos.found(f"{kills} in {len(deaths)} trainings of {RANKS} real ranks, {REAL_STEPS} steps each, saved every {SAVE_EVERY}")
    chaos.found(f"{figures}, {total.by_hand} resumed by hand")
    chaos.found(f"losses within {total.deviation:.0e} of those of one undisturbed rank")
    assert not total.wrong
    assert not total.stuck
    assert total.repeated < 2 * SAVE_EVERY  # an asynchronous save is published before the next one begins
    assert total.deviation <= 1e-5
