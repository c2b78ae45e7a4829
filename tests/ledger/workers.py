"""Worker processes on one ledger, their log files, and an audit of both."""

import json
import multiprocessing
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from strategist.contract.measurement import Outcome
from strategist.contract.study import TrialState
from strategist.ledger.ledger import Ledger
from strategist.ledger.rows import MAX_ATTEMPTS, Claim, TrialRow

FORK = multiprocessing.get_context("fork")

Notes = list[tuple[int, int, str]]
"""Trial, attempt, and a text."""


def note(log: Path, claim: Claim, text: str) -> None:
    """Appends one line atomically: a single write of a few bytes, so a kill cannot truncate the line."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{claim.number} {claim.attempt} {text}\n".encode())
    os.close(descriptor)


def notes(folder: Path, kind: str) -> Notes:
    lines = [line.split() for log in folder.glob(f"*.{kind}") for line in log.read_text().splitlines()]
    return [(int(number), int(attempt), text) for number, attempt, text in lines]


@dataclass(frozen=True, kw_only=True)
class Work:
    """A worker: claims, runs and finishes trials until none is left, and logs each claim and acknowledged result. With
    ``proposes`` the worker queues another trial if there is none."""

    folder: Path
    lease_seconds: float = 60.0
    trial_seconds: float = 0.0
    proposes: bool = False

    def run(self, name: str) -> None:
        with Ledger.open(self.folder) as ledger:
            for claim in self._claims(ledger, name):
                note(self.folder / f"{name}.claimed", claim, name)
                value = f"{name}-{claim.number}-{claim.attempt}"
                if self._held_lease(ledger, claim) and ledger.finish(claim, Outcome.OK, json.dumps(value)):
                    note(self.folder / f"{name}.acknowledged", claim, value)

    def _claims(self, ledger: Ledger, name: str) -> Iterator[Claim]:
        proposed = 0
        while True:
            if (claim := ledger.claim(name, self.lease_seconds)) is not None:
                yield claim
            elif self.proposes:
                proposed += 1
                ledger.enqueue(f"candidate {name} {proposed}", '{"plan": 0}', name)
            else:
                return

    def _held_lease(self, ledger: Ledger, claim: Claim) -> bool:
        """Sleeps for a trial's duration and renews the lease like a tuner; False once another worker has claimed the trial."""
        ends = time.monotonic() + self.trial_seconds
        while (left := ends - time.monotonic()) > 0:
            time.sleep(min(left, self.lease_seconds / 4))
            if left > self.lease_seconds / 4 and not ledger.renew(claim, self.lease_seconds):
                return False
        return True


def start(target: Callable[..., None], *args: object) -> BaseProcess:
    process = FORK.Process(target=target, args=args)
    process.start()
    return process


def enqueue(folder: Path, server: str, trials: int) -> None:
    with Ledger.open(folder, create=True, server=server) as ledger:
        for number in range(trials):
            ledger.enqueue(f"candidate {number}", '{"plan": 0}', "test")


def run_workers(work: Work, workers: int) -> tuple[float, int]:
    """Runs ``workers`` until no trial is left; returns the seconds, and the number of workers that ended by an error."""
    begun = time.monotonic()
    processes = [start(work.run, f"w{index}") for index in range(workers)]
    for process in processes:
        process.join()
    return time.monotonic() - begun, sum(process.exitcode != 0 for process in processes)


def kill_at_random(
    work: Work, workers: int, kills: int, chance: random.Random, longest_seconds: float, spare: bool = False
) -> set[str]:
    """Kills workers at random times and replaces them; returns the killed names. At the end all are killed; with ``spare`` only
    workers that claimed a trial are killed, and the remaining ones finish all trials."""
    alive, killed, begun = dict[str, BaseProcess](), set[str](), 0
    while len(killed) < kills:
        while len(alive) < workers:
            begun += 1
            alive[f"w{begun}"] = start(work.run, f"w{begun}")
        time.sleep(chance.uniform(0.002, longest_seconds))
        if within := [name for name in sorted(alive) if not spare or (work.folder / f"{name}.claimed").exists()]:
            _kill(alive, chance.choice(within), killed)
    for name in sorted(alive):
        if spare:
            alive.pop(name).join()
        else:
            _kill(alive, name, killed)
    return killed


def _kill(alive: dict[str, BaseProcess], name: str, killed: set[str]) -> None:
    victim = alive.pop(name)
    if victim.is_alive():
        victim.kill()
        killed.add(name)
    victim.join()


def finish(work: Work) -> None:
    """One worker finishes the remaining trials, once the leases of killed workers have expired."""
    with Ledger.open(work.folder) as ledger:
        while (counts := ledger.counts()).queued or counts.running:
            work.run("survivor")
            time.sleep(0.02)


@contextmanager
def busy_processors() -> Iterator[None]:
    """Runs two busy processes per processor."""
    burners = [start(_burn) for _ in range(2 * len(os.sched_getaffinity(0)))]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.join()


def _burn() -> None:
    while True:
        pass


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Counts over a finished study: acknowledged results, and attempts ``given_up`` by killed and (``of_living``) living
    workers. Must be zero: results ``lost``, trials ``doubled`` or ``stuck``, and attempts that were given up and not retried
    exactly once, up to the maximum of attempts."""

    acknowledged: int
    given_up: int
    of_living: int
    lost: int
    doubled: int
    stuck: int
    not_retried: int


def audit(folder: Path, killed: Set[str] = frozenset()) -> Audit:
    with Ledger.open(folder) as ledger:
        trials = ledger.trials()
    results = {(trial.number, trial.attempt): trial.measurement_json for trial in trials if trial.state is TrialState.FINISHED}
    acknowledged = notes(folder, "acknowledged")
    claims = Counter((number, attempt) for number, attempt, _ in notes(folder, "claimed"))
    given_up = [attempt.owner for trial in trials for attempt in trial.attempts if attempt.outcome is Outcome.LOST]
    return Audit(
        acknowledged=len(acknowledged),
        given_up=len(given_up),
        of_living=sum(owner not in killed for owner in given_up),
        lost=sum(results.get((number, attempt)) != json.dumps(value) for number, attempt, value in acknowledged),
        doubled=sum(count > 1 for count in claims.values()) + sum(_done(trial) > 1 for trial in trials),
        stuck=sum(trial.state is not TrialState.FINISHED for trial in trials),
        not_retried=sum(not _retried_once(trial) for trial in trials),
    )


def _done(trial: TrialRow) -> int:
    return sum(attempt.outcome is Outcome.OK for attempt in trial.attempts)


def _retried_once(trial: TrialRow) -> bool:
    """Whether all attempts but the last were given up, and the last was not, unless it was the maximum."""
    *before, last = trial.attempts
    ended = Outcome.LOST if len(trial.attempts) == MAX_ATTEMPTS and last.outcome is Outcome.LOST else Outcome.OK
    return [attempt.outcome for attempt in before] == [Outcome.LOST] * len(before) and last.outcome is ended
