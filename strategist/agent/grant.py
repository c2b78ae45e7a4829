"""Grants: the trials and minutes that the operator of a server lets agents spend. An agent cannot request or extend one."""

import json
import os
import shutil
import time
from dataclasses import asdict
from pathlib import Path

from strategist.agent.problem import RefusedError
from strategist.errors import FileError, InputError
from strategist.frozen import frozen

GRANT_EXAMPLE = "write e.g. trials=3,minutes=30"
SPENDING_FILE = "grant.jsonl"
"""Log of what was spent of a grant, in the folder of the grant: a restarted server continues with the rest."""


@frozen
class Grant:
    """Limits of an agent's jobs: number of ``trials`` and total ``minutes``, in the studies below ``folder``."""

    trials: int
    minutes: float
    folder: Path

    @classmethod
    def parsed(cls, text: str, folder: Path) -> "Grant":
        """Parses ``trials=3,minutes=30``.

        Raises:
            InputError: the text has another form.
        """
        found: dict[str, str] = {}
        for part in text.split(","):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if name not in ("trials", "minutes") or not equals or name in found:
                raise InputError(f"--grant {text}", f"{part!r} is neither trials nor minutes", GRANT_EXAMPLE)
            found[name] = value
        if set(found) != {"trials", "minutes"}:
            raise InputError(f"--grant {text}", "needs both trials and minutes", GRANT_EXAMPLE)
        if not (found["trials"].isascii() and found["trials"].isdigit() and 0 < int(found["trials"]) < 10**6):
            raise InputError(f"--grant {text}", "trials are a whole number above 0", GRANT_EXAMPLE)
        try:
            minutes = float(found["minutes"])
        except ValueError:
            minutes = 0.0
        if not 0 < minutes < 10**6:
            raise InputError(f"--grant {text}", "minutes are a number above 0", GRANT_EXAMPLE)
        return cls(trials=int(found["trials"]), minutes=minutes, folder=folder)


@frozen
class Spending:
    """An entry of the log: what a job reserved, or what it used once it has ``ended``."""

    job: str
    trials: int
    seconds: float
    ended: bool
    time: float


class Budget:
    """Remaining trials and minutes of a grant. A job's limit is reserved before it starts, and the unused part is returned when it
    ends, so a killed server has spent too much rather than too little."""

    def __init__(self, grant: Grant) -> None:
        if shutil.which("timeout") is None:
            raise InputError("--grant", "needs the program timeout, which ends jobs in time", "install coreutils")
        self.grant = grant
        self._book = grant.folder / SPENDING_FILE
        self._spent = {line.job: line for line in self._read()}

    @property
    def trials_left(self) -> int:
        return self.grant.trials - sum(line.trials for line in self._spent.values())

    @property
    def minutes_left(self) -> float:
        return self.grant.minutes - sum(line.seconds for line in self._spent.values()) / 60

    @property
    def last(self) -> int:
        """The highest job number in the log: a reused name would inherit what the first job spent."""
        numbers = [name.removeprefix("job-") for name in self._spent]
        return max((int(number) for number in numbers if number.isdigit()), default=0)

    def reserve(self, job: str, trials: int, minutes: float) -> None:
        """Reserves the limit of a job.

        Raises:
            RefusedError: too little is left.
        """
        self.check(trials, minutes)
        self._write(Spending(job=job, trials=trials, seconds=minutes * 60, ended=False, time=time.time()))

    def check(self, trials: int, minutes: float) -> None:
        """Checks that the grant has these ``trials`` and ``minutes`` left.

        Raises:
            RefusedError: too little is left.
        """
        if trials > self.trials_left or minutes > self.minutes_left:
            left = f"{self.trials_left} trials and {max(self.minutes_left, 0.0):.2f} minutes are left of the grant"
            raise RefusedError(
                "grant_spent", f"{trials} trials and {minutes:g} minutes are asked for, and {left}", "ask for at most that"
            )

    def record_spending(self, job: str, trials: int, seconds: float) -> None:
        """Logs what a job used, at most what it reserved."""
        reserved = self._spent[job]
        used = min(seconds, reserved.seconds)
        self._write(Spending(job=job, trials=min(trials, reserved.trials), seconds=used, ended=True, time=time.time()))

    def _write(self, line: Spending) -> None:
        try:
            self.grant.folder.mkdir(parents=True, exist_ok=True)
            with self._book.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(line)) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise FileError(self._book, f"cannot be written: {error.strerror}") from None
        self._spent[line.job] = line

    def _read(self) -> list[Spending]:
        try:
            lines = self._book.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise FileError(self._book, f"cannot be read: {error.strerror}") from None
        try:
            return [Spending(**json.loads(line)) for line in lines]
        except (ValueError, TypeError):
            raise FileError(self._book, "is not a book of a grant; move it away, or name another folder with --study") from None
