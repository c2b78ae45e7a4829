"""Runs the example scripts of cards: ``python -m strategist_runtime.deck.examples SCRIPTS.json RESULTS.jsonl``.

torch is imported once; each rank of each script is a fork of this process, which has one thread and computes nothing itself. A
script runs in torchrun's environment, in a fresh folder and without accelerators, so its result is the same on every machine.
"""

import faulthandler
import importlib
import json
import os
import re
import runpy
import signal
import socket
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from strategist.contract import codec
from strategist.contract.card_example import Script, ScriptOutcome, ScriptResult, Scripts
from strategist_runtime import rank_process

PRELOADED = (
    "torch", "torch.distributed.fsdp", "torch.distributed.tensor.parallel", "torch.distributed.tensor.experimental",
    "torch.distributed.pipelining", "torch.distributed.checkpoint", "torch.distributed.optim",
    "torch.distributed.algorithms.ddp_comm_hooks.default_hooks",
)  # fmt: skip
SINGLE_THREADED = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}
"""Disables thread pools: a process with threads cannot be forked safely."""
HIDDEN = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
POLL_SECONDS = 0.01
GRACE_SECONDS = 0.3
"""Time that other ranks have to report after the first failure, since theirs may be the cause."""
MESSAGE_CHARACTERS = 400


@dataclass(frozen=True, kw_only=True)
class RankResult:
    """Result of one rank: ``error`` in one line, empty if it passed; ``text`` is the whole error."""

    at: float
    error: str = ""
    text: str = ""
    line: int | None = None


def main(arguments: Sequence[str]) -> None:
    """Runs all scripts; writes a JSON line for each as soon as it has ended."""
    source, target = map(Path, arguments)
    rank_process.die_with_parent()
    os.environ.update({**SINGLE_THREADED, **dict.fromkeys(HIDDEN, "")})
    batch = codec.load(Scripts, source)
    _preload()
    with target.open("w", encoding="utf-8") as results:
        for script in batch.scripts:
            with tempfile.TemporaryDirectory(dir=target.parent, ignore_cleanup_errors=True) as folder:
                result = run(script, Path(folder), batch.timeout_seconds)
            results.write(json.dumps(codec.encode(result)) + "\n")
            results.flush()


def _preload() -> None:
    """Imports the modules that examples use; modules that this torch does not have are skipped, and fail in the examples that
    need them.
    """
    with warnings.catch_warnings(action="ignore"):
        for name in PRELOADED:
            try:
                importlib.import_module(name)
            except ModuleNotFoundError:
                continue


def run(script: Script, folder: Path, timeout_seconds: float) -> ScriptResult:
    """Runs one script in ``folder`` until it ends or its time is over; no process of its group is left."""
    (folder / "example.py").write_text(script.run, encoding="utf-8")
    (folder / "work").mkdir()
    begin, port = time.monotonic(), _free_port()
    ranks: list[int] = []
    try:
        for rank in range(script.ranks):
            ranks.append(_start(script, folder, rank, port, ranks[0] if ranks else 0))
        endings = _wait(ranks, folder, begin + timeout_seconds)
        stuck = _stuck(ranks, folder, endings) if len(endings) < script.ranks and not _failures(endings) else None
    finally:
        _end(ranks)
    seconds = round(time.monotonic() - begin, 3)
    if stuck is not None:
        rank, line = stuck
        message = f"rank {rank} had not ended after {timeout_seconds:g} s"
        return ScriptResult(outcome=ScriptOutcome.TIMED_OUT, seconds=seconds, message=message, line=line)
    return _script_result(script, _failures(endings), seconds)


def _script_result(script: Script, failures: list[RankResult], seconds: float) -> ScriptResult:
    first = min(failures, key=lambda ending: ending.at, default=None)
    message, line = (first.error, first.line) if first else ("", None)
    if script.refused and first is None:
        outcome, message = ScriptOutcome.FAILED, f"it ran through, and should have been refused: {script.refused}"
    elif script.refused and any(text in failure.text for failure in failures for text in script.refused.split(" | ")):
        outcome = ScriptOutcome.REFUSED
    elif first is not None:
        outcome = ScriptOutcome.FAILED
        message += f" (and not the refusal: {script.refused})" if script.refused else ""
    else:
        outcome = ScriptOutcome.PASSED
    return ScriptResult(outcome=outcome, seconds=seconds, message=message, line=line)


def _failures(endings: dict[int, RankResult]) -> list[RankResult]:
    return [ending for ending in endings.values() if ending.error]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _start(script: Script, folder: Path, rank: int, port: int, group: int) -> int:
    """Forks a rank and returns its process id; the first rank leads the process group."""
    pid = os.fork()
    if pid:
        os.setpgid(pid, group or pid)
        return pid
    try:
        rank_process.die_with_parent()
        os.setpgid(0, group)
        _redirect(folder, rank)
        rank_variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": script.ranks, "LOCAL_WORLD_SIZE": script.ranks}
        os.environ.update({name: str(value) for name, value in rank_variables.items()})
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        _run_script(folder, rank)
    finally:  # the forked copy of the runner must not continue
        os._exit(1)


def _redirect(folder: Path, rank: int) -> None:
    """Redirects output, temporary files and the working directory to the script's folder, which is removed afterwards."""
    log = os.open(folder / f"rank-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    os.chdir(folder / "work")


def _run_script(folder: Path, rank: int) -> None:
    """Runs the script as ``__main__`` and writes the rank's result. Then it waits, since peers may need this rank, until all are
    killed.
    """
    error: BaseException | None = None
    try:
        runpy.run_path(str(folder / "example.py"), run_name="__main__")
    except SystemExit as system_exit:
        error = system_exit if system_exit.code else None
    except BaseException as raised:  # outermost handler: any exception is the script's result
        error = raised
    sys.stdout.flush()
    ending = RankResult(at=time.monotonic()) if error is None else _result_of(error, folder)
    draft = folder / f"rank-{rank}.draft"
    draft.write_text(json.dumps(codec.encode(ending)), encoding="utf-8")
    draft.rename(folder / f"rank-{rank}.json")
    while True:
        signal.pause()


def _result_of(error: BaseException, folder: Path) -> RankResult:
    script = str(folder / "example.py")
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == script]
    if isinstance(error, SyntaxError) and error.filename == script:
        lines.append(error.lineno)
    text = "".join(traceback.format_exception_only(error)).strip()
    return RankResult(at=time.monotonic(), error=_message(error), text=text, line=lines[-1] if lines else None)


def _message(error: BaseException) -> str:
    """The error in one line, without C++ stack frames."""
    text = str(error).strip().split("\n\n")[0].split("\nException raised from")[0]
    name = type(error).__name__
    return (f"{name}: {' '.join(text.split())}" if text else name)[:MESSAGE_CHARACTERS]


def _wait(ranks: list[int], folder: Path, deadline: float) -> dict[int, RankResult]:
    """The results of ranks: waits until all have ended, one has failed (and the grace time is over), or the deadline has passed."""
    endings: dict[int, RankResult] = {}
    while len(endings) < len(ranks) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        for rank, pid in enumerate(ranks):
            if rank not in endings and (ending := _poll(pid, folder / f"rank-{rank}")):
                endings[rank] = ending
                if ending.error:
                    deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
    return endings


def _poll(pid: int, files: Path) -> RankResult | None:
    """The result of a rank; None while it runs. A process that has ended is not reaped yet, so that its id stays reserved for
    the group.
    """
    exit_status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    record = files.with_suffix(".json")
    if record.exists():
        ending: RankResult = codec.decode(RankResult, json.loads(record.read_text(encoding="utf-8")), record.name)
        return ending
    if exit_status is None:
        return None
    killed = exit_status.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
    error = f"ended by {signal.Signals(exit_status.si_status).name}" if killed else f"left with exit code {exit_status.si_status}"
    return RankResult(at=time.monotonic(), error=error, text=error, line=_dumped_line(files.with_suffix(".log")))


def _stuck(ranks: list[int], folder: Path, endings: dict[int, RankResult]) -> tuple[int, int | None]:
    """The first rank that is still running, and the current line of its script, from a stack dump."""
    rank = next(rank for rank in range(len(ranks)) if rank not in endings)
    os.kill(ranks[rank], signal.SIGUSR1)
    time.sleep(GRACE_SECONDS)
    return rank, _dumped_line(folder / f"rank-{rank}.log")


def _dumped_line(log: Path) -> int | None:
    """The innermost line of the script in the last stack dump of faulthandler."""
    stack = log.read_text(encoding="utf-8", errors="replace").rpartition("Current thread")[2]
    found = re.search(r'example\.py", line (\d+)', stack)
    return int(found[1]) if found else None


def _end(ranks: list[int]) -> None:
    if ranks:
        os.killpg(ranks[0], signal.SIGKILL)
    for pid in ranks:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
