"""Starts ranks like users do, with torchrun, or a single rank."""

import atexit
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from time_limit import TimeLimit, processor_seconds

from strategist.contract import codec
from strategist.contract.measurement import RankRecord, TrialSettings
from strategist.contract.plan import Plan

from .pool import TRACEBACK_SIGNAL, Job

TESTS = Path(__file__).resolve().parent.parent
PATHS = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", "PYTHONPATH": PATHS}
ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
NO_COMPILER = {"PATH": ""}
"""Environment in which torch.compile uses aot_eager: the same graphs in a tenth of the time."""

DEATHS = {"SIGSEGV": 128 + signal.SIGSEGV, "SIGABRT": 128 + signal.SIGABRT}
"""Signals by which torch's own threads crash a process; torchrun reports the names, ``forked`` the exit codes."""

SECONDS_FOR_TRACEBACKS = 2

SHORT = TrialSettings(steps=2, warmup_steps=1, init_timeout_seconds=3600.0, step_timeout_seconds=3600.0)
"""A trial of two steps. The test's timeout ends ranks that hang; collectives of slow ranks wait."""


def torchrun(ranks: int, arguments: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a module on ``ranks`` processes to its end, with ``variables`` in their environment; the test's timeout is the limit."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts=0"]
    command += ["--nproc-per-node", str(ranks), "-m", *arguments]
    environment = {**ENVIRONMENT, **variables}
    return _retry_torch_crashes(
        arguments,
        lambda: subprocess.run(command, capture_output=True, text=True, env=environment, check=False),
    )


def forked(ranks: int, arguments: Sequence[str], place: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Like ``torchrun``, in forks of a process that has imported torch (:mod:`runtime.pool`); each pytest process has one.

    The ranks run in ``place``, or in the working directory of the tests.
    """
    return _retry_torch_crashes(arguments, lambda: _pool().run(ranks, arguments, None, place or Path.cwd(), variables))


class Pool:
    """The client of :mod:`runtime.pool`; ``within`` is a command that runs the pool, such as in a namespace."""

    def __init__(self, within: Sequence[str] = ()) -> None:
        command = [*within, sys.executable, "-m", "runtime.pool"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
        atexit.register(self.end)

    def end(self) -> None:
        """Ends the pool."""
        self._process.kill()
        self._process.wait()

    def run(
        self, ranks: int, arguments: Sequence[str], timeout: float | None, place: Path, variables: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Runs a module on ``ranks`` processes to its end. Ranks that are ended before print their tracebacks.

        Raises:
            subprocess.TimeoutExpired: they hang, by the law of ``TimeLimit``; without ``timeout`` the test's timeout is the limit.
        """
        with tempfile.TemporaryDirectory() as folder:
            job = Job(
                ranks=ranks, module=arguments[0], arguments=arguments[1:], variables=variables, working_directory=str(place),
                folder=folder,
            )  # fmt: skip
            code = self._code(job, timeout)
            out, errors = (path.read_text(encoding="utf-8") for path in job.outputs)
        return subprocess.CompletedProcess(arguments, code, out, errors)

    def _code(self, job: Job, timeout: float | None) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(job.line())
        self._process.stdin.flush()
        leader = int(self._process.stdout.readline())
        limit = TimeLimit(seconds=timeout) if timeout else None
        try:
            while not select.select([self._process.stdout], [], [], limit and limit.period)[0]:
                if limit and limit.reached(processor_seconds()):
                    raise subprocess.TimeoutExpired(job.module, limit.seconds)
        except BaseException as interruption:
            os.killpg(leader, TRACEBACK_SIGNAL)
            time.sleep(SECONDS_FOR_TRACEBACKS)
            os.killpg(leader, signal.SIGKILL)
            self._process.stdout.readline()
            interruption.add_note(job.outputs[1].read_text(encoding="utf-8")[-6000:])
            raise
        return int(self._process.stdout.readline())


@cache
def _pool() -> Pool:
    return Pool()


def _retry_torch_crashes(
    arguments: Sequence[str], run: Callable[[], subprocess.CompletedProcess[str]]
) -> subprocess.CompletedProcess[str]:
    """Retries once, with a warning, if torch's own code crashed a rank; other failures are left to the test."""
    for first in (True, False):
        done = run()
        sign = next((sign for sign in DEATHS if sign in done.stderr or done.returncode == DEATHS[sign]), None)
        if not first or done.returncode == 0 or sign is None:
            break
        warnings.warn(f"{' '.join(arguments)} ended by {sign}, retried:\n{done.stderr[-3000:]}", stacklevel=3)
    return done


def trial_arguments(plan: Plan, folder: Path, settings: TrialSettings = SHORT) -> list[str]:
    """Writes the files of a trial and returns the module that runs it with its arguments."""
    codec.save(plan, folder / "plan.json")
    codec.save(settings, folder / "settings.json")
    return ["strategist_runtime", str(folder / "plan.json"), "--out", str(folder), "--settings", str(folder / "settings.json")]


def start_alone(arguments: Sequence[str], **variables: str) -> subprocess.Popen[str]:
    """Starts rank 0 of 1 as a new process, for tests of start-up and signals."""
    environment = {**ENVIRONMENT, **ALONE, **variables}
    command = [sys.executable, "-m", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def run_alone(plan: Plan, folder: Path, settings: TrialSettings = SHORT, **variables: str) -> tuple[int, RankRecord, str]:
    """Exit code, record and error output of a trial of one rank."""
    done = forked(1, trial_arguments(plan, folder, settings), **variables)
    return done.returncode, codec.load(RankRecord, folder / "rank-0.json"), done.stderr


def records(folder: Path) -> list[RankRecord]:
    """All rank records, by rank."""
    found = [codec.load(RankRecord, path) for path in folder.glob("rank-*.json")]
    return sorted(found, key=lambda record: record.rank)
