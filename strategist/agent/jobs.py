"""Jobs: trials and tunings that agents start under a grant, each a process of its own that ends when its minutes are over."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from strategist.agent.grant import Purse
from strategist.agent.problem import RefusedError
from strategist.errors import InputError

GRACE_SECONDS = 30
"""For a job to end its trial and give back its claim, before it is killed."""

LAST_LINES = 10


@dataclass(kw_only=True)
class Job:
    """One job: what it is (trial or tuning), its folder, and its process. ``exit_code`` is None while it runs."""

    name: str
    kind: str
    folder: Path
    process: subprocess.Popen[bytes] = field(repr=False)
    trials_taken: Callable[[], int] = field(repr=False)
    """How many trials it has run."""

    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    exit_code: int | None = None
    over: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def seconds(self) -> float:
        return (self.ended or time.monotonic()) - self.began

    @property
    def last_lines(self) -> tuple[str, ...]:
        """Of what it said."""
        text = (self.folder / f"{self.name}.log").read_bytes()[-4000:].decode("utf-8", "replace")
        return tuple(text.splitlines()[-LAST_LINES:])


class Jobs:
    """The jobs of one server, one at a time. Without a purse nothing starts."""

    def __init__(self, purse: Purse | None) -> None:
        self._purse = purse
        self._jobs: dict[str, Job] = {}
        self._outside = ThreadPoolExecutor(max_workers=1)
        self._outside.submit(int).result()  # its thread starts here: from within a call it would be confined as that is
        if purse is not None and shutil.which("timeout") is None:
            raise InputError("--grant", "needs the program timeout, which ends jobs in time", "install coreutils")

    @property
    def all(self) -> tuple[Job, ...]:
        return tuple(self._jobs.values())

    @property
    def running(self) -> Job | None:
        return next((job for job in self._jobs.values() if not job.over.is_set()), None)

    @property
    def left(self) -> tuple[int, float]:
        """Trials and minutes of the grant; none without one."""
        return (0, 0.0) if self._purse is None else (self._purse.trials_left, max(self._purse.minutes_left, 0.0))

    @property
    def purse(self) -> Purse:
        """What is spent.

        Raises:
            RefusedError: nothing was granted.
        """
        if self._purse is None:
            way = "ask the person who runs the server to start it with --grant trials=N,minutes=M --study DIR"
            raise RefusedError("not_granted", "this server was started without a grant", way)
        return self._purse

    def start(
        self,
        kind: str,
        folder: Path,
        prepare: Callable[[], Sequence[str]],
        *,
        trials: int,
        minutes: float,
        taken: Callable[[], int],
    ) -> Job:
        """Starts ``strategist``, with the arguments that ``prepare`` makes in the folder, in a process that may take so many trials
        and minutes.

        Raises:
            RefusedError: nothing was granted, too little is left, or a job runs.
        """
        if self.running is not None:
            raise RefusedError("busy", f"job {self.running.name} is running", "ask trial_status until it has ended")
        name = f"job-{self.purse.jobs + 1}"
        self.purse.check(trials, minutes)
        folder.mkdir(parents=True, exist_ok=True)
        program = (sys.executable, "-P", "-m", "strategist.cli.main", *prepare())
        self.purse.reserve(name, trials, minutes)
        with (folder / f"{name}.log").open("wb") as log:
            process = self._outside.submit(
                subprocess.Popen, ["timeout", "--signal=TERM", f"--kill-after={GRACE_SECONDS}", f"{minutes * 60:.3f}", *program],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=folder, start_new_session=True,
                env={**os.environ, "STRATEGIST_CONFIG": ""},  # agents write into folders
            ).result()  # fmt: skip
        job = self._jobs[name] = Job(name=name, kind=kind, folder=folder, process=process, trials_taken=taken)
        threading.Thread(target=self._wait, args=(job,), daemon=True).start()
        return job

    def _wait(self, job: Job) -> None:
        job.exit_code = job.process.wait()
        job.ended = time.monotonic()
        try:
            taken = job.trials_taken()
        except Exception:  # whatever is wrong with what it left behind, nothing comes back of the grant
            taken = sys.maxsize
        self.purse.settle(job.name, taken, job.seconds)
        job.over.set()

    def close(self) -> None:
        """Ends the job that runs, which tidies up first."""
        if (job := self.running) is not None:
            job.process.send_signal(signal.SIGTERM)  # timeout passes it on
            job.over.wait(GRACE_SECONDS + 5)
        self._outside.shutdown()
