"""Many processes on one study, killed at random, on SQLite and on PostgreSQL: python benchmarks/ledger.py [trials] [processes]

Each writes a line beside the ledger when it claims a trial, and another when its result was acknowledged. At the end every trial is
finished, every acknowledged result is the one that counts, and no attempt was handed out twice, or the program fails.
"""

import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from postgres_server import PostgresServer, missing

from strategist.contract.measurement import Outcome
from strategist.ledger.ledger import Ledger
from strategist.ledger.rows import Claim, State

TRIALS, PROCESSES = 10_000, 16
LEASE_SECONDS = 1.0
KILL_EVERY_SECONDS = 0.25
SPEEDS = ("-c", "listen_addresses=", "-c", "max_connections=60")
"""Every commit reaches the disk, as on a server that keeps what it says."""

Notes = list[tuple[int, int, str]]


def note(log: int, claim: Claim, said: str) -> None:
    """A single write of a few bytes, which a kill cannot tear."""
    os.write(log, f"{claim.number} {claim.attempt} {said}\n".encode())


def work(folder: Path, name: str) -> None:
    """Claims and finishes until nothing is left; the trial itself takes no time."""
    claimed, acknowledged = (os.open(folder / f"{name}.{kind}", os.O_WRONLY | os.O_CREAT) for kind in ("claimed", "acknowledged"))
    with Ledger.open(folder) as ledger:
        while True:
            while claim := ledger.claim(name, LEASE_SECONDS):
                note(claimed, claim, name)
                value = f"{name}-{claim.number}-{claim.attempt}"
                if ledger.finish(claim, Outcome.OK, json.dumps(value)):
                    note(acknowledged, claim, value)
            if not ledger.counts().running:
                return
            time.sleep(0.1)


def notes(folder: Path, kind: str) -> Notes:
    lines = [line.split() for log in folder.glob(f"*.{kind}") for line in log.read_text().splitlines()]
    return [(int(number), int(attempt), said) for number, attempt, said in lines]


def started(folder: Path, name: str) -> BaseProcess:
    process = multiprocessing.get_context("fork").Process(target=work, args=(folder, name))
    process.start()
    return process


def storm(folder: Path, processes: int, kills: bool) -> tuple[float, int]:
    """Seconds until nothing was left, and how many were killed on the way; each one killed is replaced."""
    begin, chance, killed = time.monotonic(), random.Random(), 0
    workers = [started(folder, f"w{index}") for index in range(processes)]
    while any(worker.is_alive() for worker in workers):
        time.sleep(KILL_EVERY_SECONDS * 2 * chance.random())
        place = chance.randrange(processes)
        if kills and workers[place].is_alive():
            workers[place].kill()
            workers[place].join()
            killed += 1
            workers[place] = started(folder, f"k{killed}")
    return time.monotonic() - begin, killed


def check(folder: Path, trials: int) -> int:
    """How many claims nobody finished, since whoever held them was killed; fails where a promise was broken."""
    with Ledger.open(folder) as ledger:
        rows = ledger.trials()
    assert [row.number for row in rows] == list(range(1, trials + 1)), "a trial is lost"
    assert all(row.state is State.FINISHED for row in rows), "a trial is stuck"
    results = {(row.number, row.attempt): row.measurement_json for row in rows}
    for number, attempt, value in notes(folder, "acknowledged"):
        assert results.get((number, attempt)) == json.dumps(value), f"the acknowledged result of trial {number} is lost"
    claims = Counter((number, attempt) for number, attempt, _ in notes(folder, "claimed"))
    assert max(claims.values()) == 1, "an attempt was handed out twice"
    finals = [sum(attempt.outcome is Outcome.OK for attempt in row.attempts) for row in rows]
    assert all(count == (row.outcome is Outcome.OK) for count, row in zip(finals, rows, strict=True)), "a trial was run twice"
    return sum(len(row.attempts) for row in rows) - sum(finals)


def run(name: str, server: str, trials: int, processes: int, kills: bool) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "study"
        with Ledger.open(folder, create=True, server=server) as ledger:
            for number in range(trials):
                ledger.enqueue(f"candidate {number}", '{"plan": 0}', "bench")
        seconds, killed = storm(folder, processes, kills)
        lost = check(folder, trials)
        print(
            f"{name}: {trials} trials by {processes} processes in {seconds:.1f} s, {trials / seconds:.0f} trials/s; "
            f"{killed} killed, {lost} of their claims run again; none lost, none run twice",
            flush=True,
        )


def main() -> None:
    """With and without kills, on both."""
    trials, processes = (int(text) for text in (*sys.argv[1:], *map(str, (TRIALS, PROCESSES)[len(sys.argv) - 1 :])))
    for kills in (False, True):
        run("SQLite", "", trials, processes, kills)
    if reason := missing():
        print(f"PostgreSQL: not measured, {reason}")
        return
    with PostgresServer.started(SPEEDS) as server:
        for kills in (False, True):
            run("PostgreSQL", server.study(), trials, processes, kills)


if __name__ == "__main__":
    main()
