"""Runs example scripts of cards in a supervised process with torch; none of their processes outlives this one."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from strategist.contract import codec
from strategist.contract.card_example import Script, ScriptOutcome, ScriptResult, Scripts
from strategist.executors import processes
from strategist.executors.local import trial_environment
from strategist.executors.requirements import require_supervision, require_torch
from strategist.executors.trial_process import end_supervised, start_supervised
from strategist.executors.trial_records import log_tail

OnResult = Callable[[int, ScriptResult], None]

TIMEOUT_SECONDS = 60.0
START_SECONDS = 120.0
"""Time limit for importing torch, on a loaded machine with a cold disk."""
POLL_SECONDS = 0.05


def run_scripts(
    scripts: Sequence[Script], *, timeout_seconds: float = TIMEOUT_SECONDS, on_result: OnResult | None = None
) -> tuple[ScriptResult, ...]:
    """Results of the scripts, in their order; ``on_result`` is called with each as soon as its script has ended.

    Raises:
        InputError: no Linux or no torch; nothing was started.
    """
    if not scripts:
        return ()
    require_supervision()
    require_torch()
    with tempfile.TemporaryDirectory(prefix="strategist-examples-") as name:
        folder = Path(name)
        codec.save(Scripts(scripts=tuple(scripts), timeout_seconds=timeout_seconds), folder / "scripts.json")
        results = _Results(folder / "results.jsonl", on_result)
        tag = processes.new_tag("examples")
        command = (sys.executable, "-m", "strategist_runtime.deck.examples", str(folder / "scripts.json"), str(results.path))
        supervisor = None
        try:
            supervisor = start_supervised(command, folder=folder, environment=trial_environment(os.environ), tag=tag)
            _wait(supervisor, results, time.monotonic() + START_SECONDS + len(scripts) * (timeout_seconds + 1))
        finally:
            end_supervised(supervisor, tag)
        return (*results.read, *[_not_run(folder)] * (len(scripts) - len(results.read)))


class _Results:
    """Results read from a file that grows line by line."""

    def __init__(self, path: Path, on_result: OnResult | None) -> None:
        self.path, self._on_result = path, on_result
        self.read: list[ScriptResult] = []

    def read_new(self) -> None:
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True) if self.path.exists() else []
        for line in lines[len(self.read) :]:
            if not line.endswith("\n"):
                return
            result = codec.decode(ScriptResult, json.loads(line), self.path.name)
            self.read.append(result)
            if self._on_result is not None:
                self._on_result(len(self.read) - 1, result)


def _wait(supervisor: subprocess.Popen[bytes], results: _Results, deadline: float) -> None:
    running = True
    while running and time.monotonic() < deadline:
        try:
            supervisor.wait(POLL_SECONDS)
            running = False
        except subprocess.TimeoutExpired:
            pass
        results.read_new()


def _not_run(folder: Path) -> ScriptResult:
    log_lines = log_tail(folder, "launcher").strip().splitlines()
    message = f"the runner ended before it: {log_lines[-1] if log_lines else 'without output'}"
    return ScriptResult(outcome=ScriptOutcome.FAILED, seconds=0.0, message=message)
