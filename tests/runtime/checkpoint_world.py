"""Ranks that save and resume by the runtime's checkpoint protocol, without torch, on an in-memory file system. A scheduler decides
which rank takes its next step, which dies, and which call fails.

A call of the file system has several effects one after another; between any two of them other ranks may act, or the rank may die.
"""

import errno
import os
import random
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from strategist_runtime.training.checkpoint_protocol import OWNER, CollectiveStep, Rank, Steps
from strategist_runtime.training.retention import checkpoints_to_remove

from strategist.contract import checkpoint, codec
from strategist.contract.checkpoint import DESCRIPTION, Training
from strategist.contract.measurement import TrialSettings
from strategist.contract.model import ModelShape
from strategist.contract.workload import Workload
from strategist.errors import FileError, StrategistError

from .checkpoint_memory import ROOT, Effects, Memory, Tree, written_to_disk

MODEL = ModelShape(name="small", layers=1, hidden_size=8, heads=1, kv_heads=1, head_size=8, ffn_size=8, vocab_size=8)
TRAINING = Training(step=0, samples=0, settings=TrialSettings(), model=MODEL, workload=Workload(), plan_id="p", ranks=1, files={})
ERRORS = (errno.ENOSPC, errno.EROFS, errno.EIO)


@dataclass
class View:
    """The file system as called by one rank; its lock is held until the process ends."""

    memory: Memory
    runner: "Runner"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.memory, name)

    def lock(self, folder: Path) -> Effects:
        yield
        world = self.runner.world
        holder = world.locked_by
        if holder is not None and holder is not self.runner and not (holder.dead or holder.done):
            raise FileError(ROOT, "another training saves there")
        world.locked_by = self.runner


@dataclass
class Content:
    """What a rank writes of a step: step, rank and number of ranks, so that mixed checkpoints are detected."""

    world: "World"
    memory: Memory
    step: int
    rank: int
    ranks: int

    def write(self, folder: Path) -> Steps[None]:
        yield CollectiveStep(value=("torch", "plans"))  # its writers continue together, and each creates the folder
        yield partial(self.memory.make, folder)
        yield partial(self.memory.write, folder / f"part-{self.rank}", text_of(self.step, self.rank, self.ranks))

    def description(self, files: Mapping[str, int]) -> str:
        return described(self.step, self.ranks, tuple(files.items()))

    def superseded(self) -> Sequence[Path]:
        return superseded(self.memory.tree(files=False), self.world.place, self.step, self.world.keep)


@lru_cache(10_000)
def described(step: int, ranks: int, files: tuple[tuple[str, int], ...]) -> str:
    return codec.dumps(replace(TRAINING, step=step, ranks=ranks, files=dict(files)))


@lru_cache(10_000)
def superseded(tree: Tree, place: Path, step: int, keep: int) -> list[Path]:
    return [ROOT / path.name for path in checkpoints_to_remove(written_to_disk(tree, place), step, keep)]


@lru_cache(10_000)
def newest(tree: Tree, place: Path) -> int | None:
    """The step that the reader of production finds."""
    found = checkpoint.newest(written_to_disk(tree, place))
    return None if found is None else found[1].step


def text_of(step: int, rank: int, ranks: int) -> str:
    return f"step {step} of rank {rank} of {ranks}" + "." * step  # sizes differ


class PeerLostError(Exception):
    """A peer of a collective is dead."""


@dataclass(eq=False)
class Runner:
    """One rank, which takes one effect at a time."""

    world: "World"
    session: "Session"
    number: int
    steps: Steps[None] | None = None
    call: Effects | None = None
    again: Callable[[], Any] | None = None
    answer: Any = None
    error: Exception | None = None
    agreement: CollectiveStep | None = None
    agreed: int = 0
    dead: bool = False
    done: bool = False

    @property
    def ready(self) -> bool:
        return not (self.dead or self.done) and (self.agreement is None or self.session.settled(self))

    def tick(self) -> None:
        """Runs the next effect."""
        try:
            if self.agreement is not None:
                self.answer, self.error = self.session.result(self)
                self.agreement = None
            if self.call is None:
                self._next()
            else:
                self._advance()
        except StopIteration:
            self.done = True
        except (PeerLostError, StrategistError):  # its peers are gone, or the rank may not start: the rank ends
            self.dead = self.session.interrupted = True

    def _next(self) -> None:
        assert self.steps is not None
        error, self.error = self.error, None
        step = self.steps.throw(error) if error is not None else self.steps.send(self.answer)
        self.answer = None
        if isinstance(step, CollectiveStep):
            self.agreement = step
            self.agreed += 1
            self.session.values.setdefault(self.agreed, {})[self.number] = step.value
            return
        found = step()
        if isinstance(found, Generator):
            self.call, self.again = found, step
        else:
            self.answer = found

    def _advance(self) -> None:
        assert self.call is not None
        assert self.again is not None
        fault = self.world.fault(self)
        try:
            if fault == "before":
                raise self.world.failure()
            next(self.call)
            if fault == "after":
                raise self.world.failure()
            return
        except StopIteration as end:
            self.answer = end.value
            if fault == "twice":
                self._repeat()
        except OSError as error:
            self.error = error
        except FileError as error:
            self.error = error
        self.call = None
        self.world.check()

    def calls(self, name: str) -> bool:
        """Whether the current call has this name and acts inside the folder."""
        return isinstance(self.again, partial) and self.again.func.__name__ == name and self.again.args[0] != ROOT

    def _repeat(self) -> None:
        """Runs the same call once more and keeps the second reply."""
        assert self.again is not None
        call = self.again()
        while True:
            try:
                next(call)
            except StopIteration as end:
                self.answer = end.value
                return
            except OSError as error:
                self.error = error
                return


@dataclass(eq=False)
class Session:
    """One set of ranks, which resumes from the newest checkpoint and runs up to the last step."""

    world: "World"
    ranks: int
    number: int
    runners: list[Runner] = field(default_factory=list)
    values: dict[int, dict[int, Any]] = field(default_factory=dict)
    verdicts: dict[int, set[str]] = field(default_factory=dict)
    interrupted: bool = False

    def settled(self, runner: Runner) -> bool:
        """Whether the rank's collective can complete or fail: all ranks have joined, or one never will."""
        there = self.values[runner.agreed]
        ended = [other for other in self.runners if (other.dead or other.done) and other.number not in there]
        return len(there) == self.ranks or bool(ended)

    def result(self, runner: Runner) -> tuple[Any, Exception | None]:
        there = self.values[runner.agreed]
        if len(there) < self.ranks:
            return None, PeerLostError("connection closed by peer")
        assert len({type(value) for value in there.values()}) == 1, "ranks agree on different things"
        return [there[rank] for rank in range(self.ranks)], None

    def program(self, runner: Runner) -> Steps[None]:
        """A rank's work: a training in which every step is saved."""
        view = View(self.world.memory, runner)
        rank = Rank(storage=view, folder=ROOT, owner=runner.number == OWNER, token=f"{self.number}-{runner.number}")
        rank, found = yield from rank.begin(self.world.look)
        for step in range(1 if found is None else found + 1, self.world.last + 1):
            content = Content(self.world, self.world.memory, step, runner.number, self.ranks)
            problem = yield from rank.save(step, self.world.shortage(), content)
            problems = self.verdicts.setdefault(step, set())
            problems.add(problem)
            assert len(problems) == 1, f"ranks differ on step {step}: {problems}"
            self.world.ended(step, problem)

    @property
    def over(self) -> bool:
        return all(runner.dead or runner.done for runner in self.runners)


class World:
    """A training in one folder, from its first session to its last step. A death ends a session; the next one has as many ranks as
    ``sizes`` gives.

    Calls fail with probability ``failing``, and the first call named ``fails_once`` fails. With ``late``, calls of dead ranks take
    effect later, and their peers continue for a while during the next session.
    """

    def __init__(
        self,
        place: Path,
        chances: random.Random,
        sizes: Iterator[int],
        *,
        last: int = 2,
        keep: int = 1,
        failing: float = 0.0,
        late: bool = False,
        fails_once: str = "",
    ) -> None:
        self.place, self.chances, self.sizes = place, chances, sizes
        self.last, self.keep, self.failing, self.late = last, keep, failing, late
        self.fails_once = fails_once
        self.memory = Memory()
        self.sessions: list[Session] = []
        self.live: list[Runner] = []
        self.locked_by: Runner | None = None
        self.pending: list[Effects] = []
        self.saved: list[int] = []
        self.damaged = self.damaged_in = 0
        self.failed, self.effects, self.kills = 0, 0, 0
        self.start()

    def start(self) -> None:
        session = Session(self, next(self.sizes), len(self.sessions))
        session.runners = [Runner(self, session, number) for number in range(session.ranks)]
        for runner in session.runners:
            runner.steps = session.program(runner)
        self.sessions.append(session)
        self.live = [runner for runner in self.live if not (runner.dead or runner.done)] + session.runners

    def run(self, kill: Callable[[], str] = lambda: "") -> None:
        """Runs to the end. Before each effect ``kill`` returns which ranks die (``all``, ``power``, a rank's number, or an empty
        text), or ``damage`` to damage the newest checkpoint.
        """
        while True:
            if victim := kill():
                self.damage() if victim == "damage" else self.kill(victim)
            session = self.sessions[-1]
            ready = [runner for runner in self.live if runner.ready]
            if self.late and self.chances.random() < 0.8:  # ranks of dead sessions are slow
                ready = [runner for runner in ready if runner.session is session] or ready
            if session.interrupted and (session.over or (self.late and self.chances.random() < 0.1)):
                self.start()
            elif self.pending and self.chances.random() < 0.1:
                self._late()
            elif ready:
                self.effects += 1
                self.chances.choice(ready).tick()
            else:
                assert all(runner.done for runner in session.runners), "all wait for each other"
                return

    def kill(self, victim: str) -> None:
        self.kills += 1
        session = self.sessions[-1]
        victims = [int(victim)] if victim.isdigit() else range(session.ranks)
        for number in victims:
            self._end(session.runners[number])
        if not self.late or victim == "power":
            for other in self.sessions:
                for runner in other.runners:
                    self._end(runner)
        if victim == "power":
            self.pending.clear()
            self.memory.lose_power(self.chances)
        self.check()

    def _end(self, runner: Runner) -> None:
        if self.late and runner.call is not None and not runner.dead:
            self.pending.append(runner.call)
        runner.dead = runner.dead or not runner.done
        runner.session.interrupted = True

    def _late(self) -> None:
        call = self.pending.pop(self.chances.randrange(len(self.pending)))
        with suppress(StopIteration, OSError, FileError):
            next(call)
        self.check()

    def fault(self, runner: Runner) -> str:
        if self.fails_once and runner.calls(self.fails_once):
            self.fails_once = ""
            return "before"
        if self.failing and self.chances.random() < self.failing:
            return self.chances.choice(["before", "after", "twice", "twice"])
        return ""

    def shortage(self) -> str:
        """The reason that a rank cannot write, such as no memory for a copy."""
        return "out of memory" if self.failing and self.chances.random() < self.failing else ""

    def damage(self) -> None:
        """Truncates a file of the newest checkpoint, once, if there is an earlier checkpoint."""
        step = self.newest()
        if step is None or self.damaged or checkpoint.name_of(step - 1) not in self.memory.root.entries:
            return
        file = self.memory.root.entries[checkpoint.name_of(step)].entries["part-0"]
        file.data = file.disk = file.data[:3]
        self.damaged, self.damaged_in = step, len(self.sessions)
        self.saved = [saved for saved in self.saved if saved < step]

    def failure(self) -> OSError:
        code = self.chances.choice(ERRORS)
        return OSError(code, os.strerror(code))

    def look(self) -> int | None:
        found = newest(self.memory.tree(), self.place)
        assert found == self.newest(), "the reader finds another complete checkpoint"
        return found

    def ended(self, step: int, problem: str) -> None:
        if problem:
            self.failed += 1
        elif (step, len(self.sessions)) != (self.damaged, self.damaged_in):  # otherwise damaged before this rank learned of it
            self.saved = sorted({*self.saved, step})

    def newest(self) -> int | None:
        """The newest step whose files are all there, each as it was written."""
        for name in sorted(self.memory.root.entries, reverse=True):
            if (step := checkpoint.step_of(ROOT / name)) is not None and self._whole(name, step):
                return step
        return None

    def _whole(self, name: str, step: int) -> bool:
        files = {entry: file.data for entry, file in self.memory.root.entries[name].entries.items()}
        text = files.pop(DESCRIPTION, "")
        return any(
            files == {f"part-{rank}": text_of(step, rank, ranks) for rank in range(ranks)} and f'"ranks": {ranks}' in text
            for ranks in [len(files)]
        )

    def check(self) -> None:
        """The last save that a rank knows to be complete, or a later one, can be read; with ranks of two sessions at once, the
        previous one.
        """
        if not self.saved:
            return
        least = self.saved[-1] if not self.late else self.saved[-2] if len(self.saved) > 1 else 0
        found = self.newest() or 0
        assert found >= least, f"step {self.saved[-1]} was saved, step {found} can be read"
