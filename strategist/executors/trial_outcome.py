"""Outcome of a trial: a pure function of the files of its ranks and the exit of its launcher.

Each failed rank gives one finding; the most severe finding is the outcome. Failures that follow from another rank's failure (a
lost connection, the launcher's SIGTERM, our own kill) count only if nothing else explains the trial: launchers often blame the
wrong rank, because a rank that runs out of memory may die after its peers have noticed.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from strategist.contract.measurement import STOPPED, Evidence, Kind, Measurement, Outcome, RankRecord, TrialSettings
from strategist.contract.plan import Plan
from strategist.executors.deadlines import Deadline, Ending
from strategist.executors.trial_metrics import Impossible, figures
from strategist.executors.trial_records import RankEnd
from strategist.frozen import frozen

EXIT_OUTCOMES = {77: Outcome.OOM, 78: Outcome.NAN, 79: Outcome.REFUSED}
"""Exit codes by which a rank reports its outcome even if it could not write a record."""

DEADLINE_OUTCOMES = {Deadline.PEERS: Outcome.CRASH, Deadline.MEMORY: Outcome.OOM, Deadline.CROWDED: Outcome.INFRASTRUCTURE}
"""Outcome of a rank that was ended from outside, by deadline; any other deadline is a timeout."""

ENDED_NOTE = "ended from outside"

SIGKILLED, TERMINATED, ABORTED = (-9, 137), (-15, 143), (-6, 134)
END_SIGNALS = (2, 15)
"""Signals that request the end of a launcher."""

LOADER_KILLED = ("killed by signal: Killed",)
"""Torch's message when a process of its data loader was killed."""

KILLED = ("Signal 9 (SIGKILL)", "exitcode  : -9")
"""torchrun's messages when a rank was killed."""

OUT_OF_MEMORY = (
    "CUDA out of memory", "torch.OutOfMemoryError", "torch.cuda.OutOfMemoryError", "can't allocate memory",
    "Cannot allocate memory", "std::bad_alloc", "MemoryError", "CUBLAS_STATUS_ALLOC_FAILED",
)  # fmt: skip
ERROR_LINE = re.compile(r"\b(RuntimeError|OSError|AcceleratorError|\w*MemoryError)(:|$)|terminate called|what\(\):")
"""Start of a line that ends a process: an exception of Python or C++."""

PEER_LOST = (
    "Connection closed by peer", "Connection reset by peer", "Broken pipe", "Socket closed", "Connection refused",
    "recvValue failed", "sendBytes failed", "recvBytes failed", "failed to recv", "remote process exited",
    "ncclRemoteError", "ncclSystemError", "NCCL communicator was aborted", "connectFullMesh failed",
)  # fmt: skip
TIMED_OUT = (
    "Timed out waiting", "timed out after", "Watchdog caught collective operation timeout", "DistStoreError",
    "Timeout waiting for key", "monitoredBarrier", "wait timeout",
)  # fmt: skip

DEVICE_LOST = (
    "uncorrectable ECC error", "no CUDA-capable device", "CUDA-capable device(s) is/are busy or unavailable",
    "hardware stack error", "GPU has fallen off the bus",
)  # fmt: skip
"""CUDA's messages about a lost device (cudaError_t in the runtime's reference)."""


@frozen
class Finding:
    """Failure of one rank; ``own`` is False if it follows from the failure of another rank."""

    end: RankEnd
    outcome: Outcome
    message: str
    is_cause: bool = True

    @property
    def severity(self) -> int:
        """Sort key: 0 is the most severe. A crash comes before a timeout, since the other ranks of a crashed one wait for it."""
        order = [Outcome.REFUSED, Outcome.OOM, Outcome.NAN, Outcome.CRASH, Outcome.INFRASTRUCTURE, Outcome.TIMEOUT]
        if not self.is_cause:
            return len(order) + (2 if self.outcome is Outcome.CRASH else 1)
        return order.index(self.outcome) if self.outcome in order else len(order)


Measure = Callable[[Plan, TrialSettings, Sequence[RankRecord], float], dict[str, Any]]
"""Makes the fields of a measurement from complete records and the seconds of the whole trial; raises Impossible."""


def judge(
    plan: Plan, settings: TrialSettings, ending: Ending, ends: Sequence[RankEnd], launcher_tail: str, measure: Measure = figures
) -> Measurement:
    """The measurement of a trial that has ended, whatever the reason."""
    findings = [finding for end in ends if (finding := _examine(end, ending, plan.id)) is not None]
    if findings:
        failed = _failed(plan, ending, ends, findings, launcher_tail)
        slow = failed.outcome is Outcome.TIMEOUT and ending.deadline is Deadline.STEP
        return replace(failed, least_step_seconds=settings.step_timeout_seconds) if slow else failed
    note = "" if ending.exit_code == 0 else "every rank finished its work, but the trial did not end by itself"
    try:
        measured = measure(plan, settings, [end.record for end in ends if end.record], ending.wall_seconds)
    except Impossible as error:
        evidence = Evidence(message=str(error), rank=error.rank, phase="done", log_tail=ends[error.rank].log_tail)
        return _measurement(plan, ending, ends, Outcome.BAD_MEASUREMENT, evidence)
    return Measurement(
        plan_id=plan.id, kind=Kind.REAL, outcome=Outcome.OK, evidence=Evidence(message=note), restarts=ending.restarts,
        wall_seconds=ending.wall_seconds, versions=_versions(ends), **measured,
    )  # fmt: skip


def _failed(plan: Plan, ending: Ending, ends: Sequence[RankEnd], findings: Sequence[Finding], launcher_tail: str) -> Measurement:
    any_started = any(end.phase or end.record or end.exit_code is not None for end in ends)
    if not any_started and ending.deadline is None:
        message = f"the launcher ended with {_exit(ending.exit_code)} before any rank started"
        return _measurement(plan, ending, ends, Outcome.INFRASTRUCTURE, Evidence(message=message, log_tail=launcher_tail))
    worst = min(findings, key=lambda finding: (finding.severity, _when(finding.end), finding.end.rank))
    outcome, message, end = worst.outcome, worst.message, worst.end
    if outcome is Outcome.TIMEOUT and ending.deadline is not None:
        end = ends[ending.straggler]
        message = f"{_DEADLINE_TEXTS[ending.deadline]}; furthest behind is rank {end.rank}, in {end.phase or 'spawn'}"
    elif message == ENDED_NOTE and ending.deadline in _MEMORY_TEXTS:
        message = _MEMORY_TEXTS[ending.deadline]
    elif outcome is Outcome.BAD_MEASUREMENT and any(not finding.is_cause for finding in findings):
        outcome = Outcome.CRASH  # the rank ended early, and its peers failed with it
    elif not worst.is_cause and ending.deadline is None and (number := _signal(ending.exit_code)):
        outcome, message = Outcome.INFRASTRUCTURE, f"the launcher was ended by signal {number}"
    elif not worst.is_cause and ending.deadline is None and _got_sigterm(first := min(ends, key=_when)):
        outcome, end = Outcome.INFRASTRUCTURE, first
        message = f"rank {end.rank} was ended by SIGTERM before any other failed: its machine was taken away"
    phase = end.record.phase if end.record else end.phase
    tail = (end.log_tail or worst.end.log_tail) if any_started else launcher_tail
    return _measurement(plan, ending, ends, outcome, Evidence(message=message, rank=end.rank, phase=phase, log_tail=tail))


def _got_sigterm(end: RankEnd) -> bool:
    """Whether a SIGTERM ended the rank at a known time; a launcher sends one only after a rank has failed."""
    if end.ended_at is None:
        return False
    cancelled = end.record is not None and end.record.outcome is Outcome.CANCELLED
    return cancelled or (end.record is None and end.exit_code in TERMINATED)


_DEADLINE_TEXTS = {
    Deadline.INIT: "the ranks were not ready in time",
    Deadline.STEP: "no rank moved any more",
    Deadline.WALL: "the trial took too long as a whole",
    Deadline.PEERS: "a collective waited in vain",
}
_MEMORY_TEXTS = {
    Deadline.MEMORY: "it was ended when it had taken the machine's last memory",
    Deadline.CROWDED: "it was ended when others had taken the machine's last memory",
}


def _examine(end: RankEnd, ending: Ending, plan_id: str) -> Finding | None:
    """Failure of this rank; None if it finished its work."""
    cut_off = ending.deadline is not None and end.rank not in ending.ended
    if end.record is not None:
        return _examine_record(end, cut_off, ending, plan_id)
    if cut_off:
        return Finding(
            end=end, outcome=_cut_off_outcome(ending), message=ENDED_NOTE, is_cause=ending.deadline is not Deadline.PEERS
        )
    if end.problem and end.exit_code in (0, None):
        return Finding(end=end, outcome=Outcome.BAD_MEASUREMENT, message=f"its record cannot be read: {end.problem}")
    return _examine_exit(end, ending)


def _examine_record(end: RankEnd, cut_off: bool, ending: Ending, plan_id: str) -> Finding | None:
    record = end.record
    assert record is not None
    if (record.outcome, record.phase) == (Outcome.CANCELLED, STOPPED):
        return Finding(end=end, outcome=Outcome.CANCELLED, message=record.message)
    if record.rank != end.rank:
        return Finding(end=end, outcome=Outcome.BAD_MEASUREMENT, message=f"its record is that of rank {record.rank}")
    if record.plan_id not in ("", plan_id):
        return Finding(end=end, outcome=Outcome.BAD_MEASUREMENT, message=f"its record is of plan {record.plan_id}")
    if record.outcome is Outcome.OK:
        if record.phase == "done":
            return None
        return Finding(end=end, outcome=Outcome.BAD_MEASUREMENT, message=f"its record is ok, but ends in phase {record.phase}")
    if record.outcome in (Outcome.CRASH, Outcome.CANCELLED):
        if cut_off and ending.deadline is not Deadline.PEERS:
            message = record.message if _cut_off_outcome(ending) is Outcome.TIMEOUT else ENDED_NOTE
            return Finding(end=end, outcome=_cut_off_outcome(ending), message=message)
        if ending.oom_kills and _contains_any(record.message, LOADER_KILLED):
            return Finding(end=end, outcome=Outcome.OOM, message=record.message)
        if _contains_any(record.message, TIMED_OUT):
            return Finding(end=end, outcome=Outcome.TIMEOUT, message=record.message)
        is_cause = record.outcome is Outcome.CRASH and not cut_off and not _contains_any(record.message, PEER_LOST)
        return Finding(end=end, outcome=Outcome.CRASH, message=record.message, is_cause=is_cause)
    return Finding(end=end, outcome=record.outcome, message=record.message)


def _examine_exit(end: RankEnd, ending: Ending) -> Finding:
    """Failure of a rank that left no record and was not ended by a deadline."""
    code, message = end.exit_code, f"left no record and ended with {_exit(end.exit_code)}"
    if code is None:
        return Finding(end=end, outcome=Outcome.CRASH, message="was ended by the launcher before it left a record", is_cause=False)
    if code == 0:
        return Finding(end=end, outcome=Outcome.BAD_MEASUREMENT, message=message)
    if code in EXIT_OUTCOMES:
        return Finding(end=end, outcome=EXIT_OUTCOMES[code], message=message)
    if ending.oom_kills and (code in SIGKILLED or _contains_any(end.log_tail, KILLED)):
        return Finding(end=end, outcome=Outcome.OOM, message="was killed by the kernel, which had run out of memory")
    if (line := _out_of_memory(end.log_tail)) is not None:
        return Finding(end=end, outcome=Outcome.OOM, message=line)
    if code in TERMINATED:
        return Finding(end=end, outcome=Outcome.CRASH, message=message, is_cause=False)
    if code in ABORTED and (line := _last_line_with(end.log_tail, TIMED_OUT)) is not None:  # NCCL's watchdog aborts the rank
        return Finding(end=end, outcome=Outcome.TIMEOUT, message=line)
    if code > 0 and not end.phase:
        return Finding(end=end, outcome=Outcome.INFRASTRUCTURE, message=f"ended with {_exit(code)} before it could read the plan")
    return Finding(end=end, outcome=Outcome.CRASH, message=message, is_cause=not _contains_any(end.log_tail, PEER_LOST))


def _cut_off_outcome(ending: Ending) -> Outcome:
    assert ending.deadline is not None
    return DEADLINE_OUTCOMES.get(ending.deadline, Outcome.TIMEOUT)


def _measurement(plan: Plan, ending: Ending, ends: Sequence[RankEnd], outcome: Outcome, evidence: Evidence) -> Measurement:
    return Measurement(
        plan_id=plan.id, kind=Kind.REAL, outcome=outcome, evidence=evidence, restarts=ending.restarts,
        lost_ranks=_lost(outcome, ending, ends), wall_seconds=ending.wall_seconds, versions=_versions(ends),
    )  # fmt: skip


def _lost(outcome: Outcome, ending: Ending, ends: Sequence[RankEnd]) -> tuple[int, ...]:
    """Ranks that were taken away: killed by a signal that a launcher does not send, or with their device or launcher; or a rank
    that hangs.

    Ranks that ended after a deadline are left out, because the executor ended them.
    """
    if outcome is Outcome.TIMEOUT:
        return () if ending.straggler in ending.ended else (ending.straggler,)
    if outcome is Outcome.INFRASTRUCTURE and ending.deadline is None and _signal(ending.exit_code) not in (0, *END_SIGNALS):
        return tuple(end.rank for end in ends)
    if outcome is not Outcome.CRASH:
        return ()
    return tuple(
        end.rank
        for end in ends
        if (ending.deadline is None or end.rank in ending.ended)
        and (_killed(end) or (end.record is not None and _contains_any(end.record.message, DEVICE_LOST)))
    )


def _killed(end: RankEnd) -> bool:
    """Whether a signal ended the rank that neither a launcher nor the rank itself sends."""
    return end.record is None and (end.exit_code or 0) < 0 and end.exit_code not in (*TERMINATED, *ABORTED)


def _versions(ends: Sequence[RankEnd]) -> dict[str, str]:
    return next((end.record.versions for end in ends if end.record and end.record.versions), {})


def _when(end: RankEnd) -> float:
    return float("inf") if end.ended_at is None else end.ended_at


def _exit(code: int | None) -> str:
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def _signal(code: int) -> int:
    """The signal that ended the launcher (128 + n) or its supervisor (-n); 0 if none did."""
    return -code if code < 0 else max(0, code - 128)


def _contains_any(text: str, signs: Sequence[str]) -> bool:
    return any(sign in text for sign in signs)


def _last_line_with(text: str, signs: Sequence[str]) -> str | None:
    """The last line with one of the signs; None if there is none."""
    return next((line.strip() for line in reversed(text.splitlines()) if _contains_any(line, signs)), None)


def _out_of_memory(text: str) -> str | None:
    """The last line by which a process ends for lack of memory; lines that only mention it do not count."""
    lines = (line.strip() for line in reversed(text.splitlines()) if _contains_any(line, OUT_OF_MEMORY))
    return next((line for line in lines if ERROR_LINE.search(line)), None)
