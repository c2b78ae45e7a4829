"""Time limits of tests that only a hang reaches: a test whose processes compute goes on, however many other programs run.

pytest-timeout measures wall time. Beside busy programs a test takes many times longer than alone, so wall time alone cannot tell a
slow test from one that hangs. Processor time can: processes that wait for each other take almost none.
"""

import os
import signal
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import pytest
from pytest_timeout import Settings, timeout_sigalrm

TICKS = os.sysconf("SC_CLK_TCK")
IDLE_SHARE = 0.05
"""Processes that use less than this share of one processor hang. Four ranks in gloo's collectives, whose threads poll a hundred
times a second, took 0.017 (2026-11-27, two meshes a rank)."""


@dataclass(kw_only=True)
class TimeLimit:
    """The limit of a test in ``seconds``, asked twice within it: reading the processor time of all processes takes milliseconds, so
    it is not read at the start of each test. ``used`` are the processor seconds at each time asked.
    """

    seconds: float
    used: list[float] = field(default_factory=list)

    @property
    def period(self) -> float:
        """Wall time after which it is asked again."""
        return self.seconds / 2

    def reached(self, used: float) -> bool:
        """Whether the test hangs: its processes were idle since the last time, or have used since the first one all that they could
        have used within the limit on an idle machine.
        """
        self.used.append(used)
        if len(self.used) == 1:
            return False
        first, last = self.used[0], self.used[-2]
        return used - last < IDLE_SHARE * self.period or used - first > self.seconds * (os.cpu_count() or 1)


def processor_seconds() -> float:
    """Processor time of this process, its descendants, and those of them that have ended."""
    ticks, children = dict[int, int](), defaultdict[int, list[int]](list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        process = int(stat.parent.name)
        children[int(fields[1])].append(process)
        ticks[process] = sum(map(int, fields[11:15]))  # proc(5): utime, stime, cutime, cstime
    found, waiting = 0, [os.getpid()]
    while waiting:
        process = waiting.pop()
        found += ticks.get(process, 0)
        waiting += children[process]
    return found / TICKS


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Settings) -> bool | None:
    """Sets a timer that is set again until the test ends or hangs."""
    if settings.method != "signal":
        return None
    limit = TimeLimit(seconds=settings.timeout)

    def at_limit(_number: int, _frame: FrameType | None) -> None:
        __tracebackhide__ = True
        if limit.reached(processor_seconds()):
            timeout_sigalrm(item, settings)
        signal.setitimer(signal.ITIMER_REAL, limit.period)

    def cancel() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    item.cancel_timeout = cancel  # type: ignore[attr-defined]
    signal.signal(signal.SIGALRM, at_limit)
    signal.setitimer(signal.ITIMER_REAL, limit.period)
    return True
