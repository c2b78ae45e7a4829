"""Reads the files of a trial: records, exit codes, phases and the last lines of logs."""

import re
from collections.abc import Iterable
from pathlib import Path

from strategist.contract import codec
from strategist.contract.checkpoint import STOP_FILE
from strategist.contract.measurement import RankRecord
from strategist.errors import FileError
from strategist.executors.deadlines import read_exit
from strategist.executors.process_supervisor import LOG_BYTES
from strategist.executors.progress_file import PROGRESS_FILE
from strategist.frozen import frozen

TAIL_LINES, TAIL_CHARACTERS = 40, 8000
WRITTEN = ("rank-*", "launcher.*", PROGRESS_FILE, "measurement.json", "agent-*", STOP_FILE)
_ESCAPES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07]*(\x07|$)|.)")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_REPORTED = re.compile(r"rank +: (\d+) \(local_rank: \d+\)\s+exitcode +: (-\d+) \(pid: (\d+)\)")
_ENDED_BY_LAUNCHER = re.compile(r"Sending process (\d+) closing signal")
"""Patterns of torchrun's log for a rank that a signal ended, and for a rank that torchrun ends."""


@frozen
class RankEnd:
    """Files of one rank after its end; a value is None or empty if the rank did not write it.

    problem: why the record cannot be read.
    exit_code: negative for a signal.
    ended_at: monotonic seconds.
    """

    rank: int
    record: RankRecord | None = None
    problem: str = ""
    exit_code: int | None = None
    ended_at: float | None = None
    phase: str = ""
    log_tail: str = ""


def clear(folder: Path) -> None:
    """Removes the files of an earlier attempt, so that a stale record is not read as a new one."""
    for pattern in WRITTEN:
        for path in folder.glob(pattern):
            path.unlink()


def collect(folder: Path, ranks: int) -> tuple[RankEnd, ...]:
    """The files of each rank."""
    reported_codes = _reported_codes(folder)
    return tuple(_collect_rank(folder, rank, reported_codes.get(rank)) for rank in range(ranks))


def _reported_codes(folder: Path) -> dict[int, int]:
    """Signals that ended the supervisors of ranks, by rank, from the launcher's log; without ranks that the launcher ended itself.

    A supervisor that is killed takes its rank along and writes no exit code, but the launcher reports it.
    """
    text = b"".join(_ends([folder / "launcher.log.old", folder / "launcher.log"], LOG_BYTES)).decode("utf-8", errors="replace")
    ended_by_launcher = set(_ENDED_BY_LAUNCHER.findall(text))
    return {int(rank): int(code) for rank, code, process in _REPORTED.findall(text) if process not in ended_by_launcher}


def _collect_rank(folder: Path, rank: int, reported_code: int | None) -> RankEnd:
    path = folder / f"rank-{rank}.json"
    record, problem = None, ""
    if path.exists():
        try:
            record = codec.load(RankRecord, path, any_size=True)
        except FileError as error:
            problem = error.message
    code, when = read_exit(folder, rank) or (reported_code, None)
    return RankEnd(
        rank=rank, record=record, problem=problem, exit_code=code, ended_at=when,
        phase=_phase(folder, rank), log_tail=log_tail(folder, f"rank-{rank}"),
    )  # fmt: skip


def _phase(folder: Path, rank: int) -> str:
    try:
        words = (folder / f"rank-{rank}.phase").read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return ""
    return words[0] if words else ""


def log_tail(folder: Path, name: str) -> str:
    """The last lines of a log, without terminal control sequences."""
    text = b"".join(_ends([folder / f"{name}.log.old", folder / f"{name}.log"])).decode("utf-8", errors="replace")
    clean = without_controls(text.replace("\r", "\n"))
    return "\n".join(clean.splitlines()[-TAIL_LINES:])[-TAIL_CHARACTERS:]


def without_controls(text: str) -> str:
    """The text without terminal control sequences, such as colours."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def _ends(paths: Iterable[Path], most_bytes: int = 16 * TAIL_CHARACTERS) -> Iterable[bytes]:
    for path in paths:
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - most_bytes))
                yield file.read()
        except OSError:  # there is no older file while the first is not full
            continue
