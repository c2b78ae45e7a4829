"""Monitors an external program: ``python -m strategist.executors.program_monitor FOLDER COMMAND...``, started by the command
executor.

It supervises the program like a rank, reads its log as it is written, and writes the files of a rank: phases while the program
runs, and a record of its figures at the end. A trial of any program is therefore watched and judged like one of the built-in
runtime.
"""

import json
import os
import sys
import time
from pathlib import Path

from strategist.contract import codec
from strategist.contract.measurement import Outcome, RankRecord
from strategist.executors.host_agents import OUTPUT
from strategist.executors.process_supervisor import LOG_BYTES, Log, keep, tie_to_parent
from strategist.executors.progress_file import PROGRESS_FILE
from strategist.executors.trial_outcome import KILLED, SIGKILLED
from strategist.executors.trial_records import without_controls
from strategist.programs.log_pattern import LINE_CHARACTERS, LOSS, PEAK_MEMORY, PEAK_RESERVED, is_finite
from strategist.programs.program_output import Reader, Reading, Step

NAME = "rank-0"
FILE_BYTES = 2**24
"""Maximum number of bytes read from the program's own JSON file."""

FAILURES = ("Error", "Exception", "error:")
"""Words that mark the line with the reason of a failure, among the lines that a launcher adds."""


class FollowedLog(Log):
    """A log whose lines are parsed as they are written; a carriage return also ends a line, as in progress bars."""

    def __init__(self, folder: Path, reading: Reading) -> None:
        super().__init__(folder / f"{NAME}.log")
        self.folder, self.reading, self.reader = folder, reading, Reader(reading)
        self.out_of_memory, self.failure, self.last, self.killed = "", "", "", False
        self._rest = b""
        self.phase = ""
        self.enter("init")

    def write(self, data: bytes) -> None:
        super().write(data)
        *lines, rest = (self._rest + data.replace(b"\r", b"\n")).split(b"\n")
        self._rest = rest[-LINE_CHARACTERS:]
        now = time.monotonic()
        for line in lines:
            self.take(line[:LINE_CHARACTERS], now)

    def close(self) -> None:
        """Parses the last line if it has no line end."""
        self.take(self._rest, time.monotonic())

    def take(self, data: bytes, now: float) -> None:
        """Parses one line."""
        line = without_controls(data.decode("utf-8", errors="replace")).strip()
        if not line:
            return
        self.last = line
        self.detect_failure(line)
        if (step := self.reader.line(line, now)) is not None:
            self.enter("warm-up" if len(self.reader.steps) <= self.reading.warmup_steps else "measure", step)

    def read_remote_log(self, path: Path) -> None:
        """Searches the end of another host's output for failures."""
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_BYTES))
            for line in file.read().splitlines():
                self.detect_failure(without_controls(line[:LINE_CHARACTERS].decode("utf-8", errors="replace")).strip())

    def detect_failure(self, line: str) -> None:
        """Notes a line that reports out of memory, the reason of a failure, or a killed process."""
        if not self.out_of_memory and any(sign in line for sign in self.reading.out_of_memory):
            self.out_of_memory = line
        if any(sign in line for sign in FAILURES):
            self.failure = line
        self.killed = self.killed or any(sign in line for sign in KILLED)

    def enter(self, phase: str, step: Step | None = None) -> None:
        """Writes the phase, even if it is unchanged: the new write distinguishes a step from a hang. A full disk does not end
        the program.
        """
        self.phase = phase
        draft = self.folder / f"{NAME}.phase.draft"
        try:
            draft.write_text(f"{phase} {time.time():.6f}\n", encoding="ascii")
            draft.replace(self.folder / f"{NAME}.phase")
            if step is not None:
                with (self.folder / PROGRESS_FILE).open("a", encoding="ascii") as file:
                    line = {"step": step.number, "phase": phase, "seconds": self.reading.seconds(step.figures)}
                    file.write(json.dumps(line) + "\n")
        except OSError:
            return


def main(folder: str, *command: str) -> int:
    """Runs the program to its end; returns its exit code."""
    trial_folder = Path(folder)
    reading = codec.load(Reading, trial_folder / "reading.json")
    os.environ.update(reading.environment)
    tie_to_parent("rank")
    log = FollowedLog(trial_folder, reading)
    code = keep(trial_folder, NAME, command, log)
    log.close()
    for other in sorted(trial_folder.glob(OUTPUT.format("*"))) if code else ():
        log.read_remote_log(other)
    if (record := recorded(log, code)) is not None:
        codec.save(record, trial_folder / f"{NAME}.json")
    return code


def recorded(log: FollowedLog, code: int) -> RankRecord | None:
    """The record of the program; None if it was killed, because its exit code and the system's counters tell more."""
    if code == 0 and ((finished := _finished(log)).step_seconds or not log.out_of_memory):
        return finished
    if log.out_of_memory or code in log.reading.out_of_memory_exit_codes:
        return RankRecord(rank=0, outcome=Outcome.OOM, phase=log.phase, message=log.out_of_memory or f"ended with exit code {code}")
    if log.killed or code in SIGKILLED:
        return None
    last_line = log.failure or log.last
    message = f"ended with exit code {code}" + (f": {last_line}" if last_line else "")
    return RankRecord(rank=0, outcome=Outcome.CRASH, phase=log.phase, message=message)


def _finished(log: FollowedLog) -> RankRecord:
    """The record of a program that ended with exit code 0, including the figures of its JSON file."""
    reader, problem = log.reader, ""
    if log.reading.json:
        try:
            with Path(log.reading.json).open("rb") as file:
                reader.document(file.read(FILE_BYTES).decode("utf-8"))
        except OSError as error:
            problem = f"{log.reading.json} cannot be read: {error.strerror}"
        except (ValueError, RecursionError):
            problem = f"{log.reading.json} holds no JSON that can be read"
    if problem:
        return RankRecord(rank=0, outcome=Outcome.BAD_MEASUREMENT, phase=log.phase, message=problem)
    bad = next((step for step in reader.steps.values() if not is_finite(step.figures.get(LOSS, 0.0))), None)
    if bad is not None:
        message = f"the loss of step {bad.number} is {bad.figures[LOSS]}"
        return RankRecord(rank=0, outcome=Outcome.NAN, phase=log.phase, message=message)
    seconds, by_arrival = reader.seconds()
    return RankRecord(
        rank=0,
        outcome=Outcome.OK,
        phase="done",
        message=TIMING_NOTE if by_arrival else "",
        step_seconds=tuple(value for value in seconds if is_finite(value)),
        peak_memory_bytes=_int_or_none(reader.peaks.get(PEAK_MEMORY)),
        peak_reserved_bytes=_int_or_none(reader.peaks.get(PEAK_RESERVED)),
        losses=tuple(reader.losses),
        grad_norms=tuple(value for value in reader.grad_norms if is_finite(value)),
    )


TIMING_NOTE = "Steps are timed by the arrival of the program's log lines: it reports no times."


def _int_or_none(value: float | None) -> int | None:
    return None if value is None or not is_finite(value) else int(value)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
