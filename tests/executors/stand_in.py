"""Stands in for the runtime: each fault takes tenths of a second, without torch.

``stand_in.py rank FAULT PLAN --out FOLDER --settings FILE`` is a rank with that fault. It imports the contract when it needs it,
which takes most of its time.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from leftovers import Leftovers

PEER_LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:538] Connection closed by peer [127.0.0.1]:4242"


SAVE_EVERY = 5
FIRST = "-in-the-first-part"
"""Suffix of faults that occur only in the first part of an elastic training."""


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


FALSE_RECORDS: dict[str, Callable[[str], str]] = {
    **{
        word: lambda text, word=word: re.sub(r"0\.0001|1e-04|1e-4", word, text, count=1)
        for word in ("NaN", "Infinity", "-Infinity", "0.0", "-0.0001", "1e999", '"fast"', "null", "true", "[]", "1e9", "1e-400")
    },
    "no steps": lambda text: re.sub(r'"step_seconds": *\[[^]]*\]', '"step_seconds": []', text),
    "no record": lambda text: "",
    "truncated": lambda text: text[: len(text) // 2],
    "of another rank": lambda text: re.sub(r'"rank": *\d+', '"rank": 7', text),
    "of another plan": lambda text: text.replace('"rank":', '"plan_id": "0123456789", "rank":'),
    "no memory": lambda text: re.sub(r'"peak_memory_bytes": *1', '"peak_memory_bytes": 0', text),
    "negative memory": lambda text: re.sub(r'"peak_memory_bytes": *1', '"peak_memory_bytes": -1', text),
    "not done": lambda text: text.replace('"done"', '"measure"'),
    "another type": lambda text: text.replace("RankRecord", "Measurement"),
    "a later version": lambda text: re.sub(r'"version": *\d+', '"version": 99', text),
}
"""Changes of a valid record's text, by kind."""


class Rank(Leftovers):
    def __init__(self, fault: str, folder: Path, settings: Path) -> None:
        self.fault, self.folder, self.settings_file = fault, folder, settings
        self.rank = int(os.environ["RANK"])

    @cached_property
    def files(self) -> ModuleType:
        return import_module("rank_files")

    @cached_property
    def settings(self) -> Any:
        return self.files.load_settings(self.settings_file)

    def enter(self, phase: str) -> None:
        path = self.folder / f"rank-{self.rank}.phase"
        draft = path.with_suffix(".draft")
        draft.write_text(f"{phase} {time.time()}\n")
        draft.replace(path)

    def save(self, outcome: str, phase: str, message: str, **figures: object) -> None:
        self.files.save_record(self.folder, self.rank, outcome, phase=phase, message=message, versions={"torch": "0"}, **figures)

    def end(self, outcome: str, phase: str, message: str, code: int, **figures: object) -> None:
        self.save(outcome, phase, message, **figures)
        os._exit(code)

    def finish(self) -> None:
        steps = tuple(0.010 + 0.001 * self.rank + 0.0001 * step for step in range(self.settings.steps))
        self.enter("done")
        self.end(
            "ok", "done", "", 0, step_seconds=steps, peak_memory_bytes=1000 + self.rank, profiled_step_seconds=0.02,
            communication_seconds=0.01, exposed_communication_seconds=0.005, losses=(3.0, 2.0), grad_norms=(1.0, 0.5),
        )  # fmt: skip

    def run(self) -> None:
        getattr(self, "start_" + self.fault.replace("-", "_"), lambda: None)()
        for phase in ("spawn", "init", "build", "warm-up"):
            self.enter(phase)
            self.suffer(phase)
        self.enter("measure")
        self.suffer("measure")
        self.finish()

    def suffer(self, phase: str) -> None:
        """Runs the fault if it belongs to this phase."""
        name, _, when = self.fault.partition("@")
        if name.endswith(FIRST):
            name, when = (name.removesuffix(FIRST) if self.folder.name == "part-0" else "no fault"), ""
        if name.startswith("false-record-") and phase == "measure":
            self.write_false_record(name.removeprefix("false-record-"))
        if when == phase:
            self.cause_fault(name)
        getattr(self, f"{phase}_{name}".replace("-", "_"), lambda: None)()

    def write_false_record(self, kind: str) -> None:
        """Writes an impossible record: steps a hundred times as fast as real ones; on all ranks (``all-``), or on rank 1."""
        if self.rank == 0 and not kind.startswith("all-"):
            return
        steps = (1e-4,) * self.settings.steps
        record = self.files.record(self.rank, "ok", phase="done", step_seconds=steps, peak_memory_bytes=1)
        text = FALSE_RECORDS[kind.removeprefix("all-")](record)
        assert text != record
        (self.folder / f"rank-{self.rank}.json").write_text(text)
        self.enter("done")
        os._exit(0)

    def wait_for(self, name: str, text: str = "") -> None:
        """Waits until a rank has written this text into the file."""
        path = self.folder / name
        while not (path.exists() and text in path.read_text()):
            time.sleep(0.01)

    def lose_peer(self) -> None:
        if self.rank == 0:
            print(PEER_LOST)
            self.end("crash", "measure", PEER_LOST, 1)

    # Faults; those of one rank are in rank 1.

    def init_hang_in_init(self) -> None:
        if self.rank == 1:
            self.wait()

    def measure_hang(self) -> None:
        if self.rank == 1:
            self.wait()
        self.wait_for("rank-1.phase", "measure")
        time.sleep(0.05)
        self.enter("measure")
        self.wait()

    def measure_hang_ignoring_sigterm(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.wait()

    def measure_stopped(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def measure_move_forever(self) -> None:
        while True:
            time.sleep(0.05)
            self.enter("measure")

    def measure_slow(self) -> None:
        for _ in range(8):
            time.sleep(0.25)
            if self.rank == 0:
                self.enter("measure")

    def measure_waits_for_acknowledgement(self) -> None:
        for step in range(3 if self.rank == 0 else 0):
            with (self.folder / "progress.jsonl").open("a") as file:
                file.write(f'{{"step": {step}}}\n')
            self.wait_for("acknowledged", f"{step}")

    def measure_slow_rank(self) -> None:
        """Steps ten times as long as the 0.05 s of the peer, which waits in each step."""
        for _ in range(6):
            time.sleep(0.5)
            self.enter("measure")

    def measure_killed(self) -> None:
        if self.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        self.wait()

    def measure_killed_once(self) -> None:
        if self.rank == 1 and not (self.folder / "killed-once").exists():
            (self.folder / "killed-once").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.3)

    def measure_supervisor_killed(self) -> None:
        """The rank ends with its supervisor, and no exit is recorded."""
        if self.rank == 1:
            os.kill(os.getppid(), signal.SIGKILL)
        self.wait()

    def measure_all_killed(self) -> None:
        """All ranks at once: rank 0 waits for the process ids of all."""
        written = self.folder / f"rank-{self.rank}.writing"
        written.write_text(str(os.getpid()))
        written.rename(self.folder / f"rank-{self.rank}.process")
        ranks = self.files.number_of_ranks(self.folder) if self.rank == 0 else 0
        others = [self.folder / f"rank-{rank}.process" for rank in range(1, ranks)]
        while self.rank == 0 and not all(path.exists() for path in others):
            time.sleep(0.01)
        for process in [int(path.read_text()) for path in others] if self.rank == 0 else []:
            os.kill(process, signal.SIGKILL)
        if self.rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.wait()

    def measure_trains(self) -> None:
        """Runs all steps, writes a progress line each, and saves every fifth step."""
        done, total = self.files.saved_steps(self.settings), self.settings.total_steps or 0
        while self.rank == 0 and done < total:
            with (self.folder / "progress.jsonl").open("a") as file:
                file.write(json.dumps({"step": done}) + "\n")
            time.sleep(0.02)
            done += 1
            self.enter("measure")
            if done % SAVE_EVERY == 0:
                self.files.save_checkpoint(self.folder, self.settings, done)
        if self.rank:
            self.wait_for("rank-0.phase", "done")

    def measure_launcher_killed(self) -> None:
        if self.rank == 1:
            os.kill(parent_of(os.getppid()), signal.SIGKILL)
        self.wait()

    def measure_trial_supervisor_killed(self) -> None:
        if self.rank == 1:
            os.kill(parent_of(parent_of(os.getppid())), signal.SIGKILL)
        self.wait()

    def measure_segfault(self) -> None:
        if self.rank == 1:
            os.kill(os.getpid(), signal.SIGSEGV)
        self.wait()

    def measure_raises(self) -> None:
        if self.rank == 1:
            raise ValueError("\x1b[31mthe layer is not there\x1b[0m")
        self.wait()

    def measure_crash_with_hanging_peer(self) -> None:
        if self.rank == 1:
            self.end("crash", "measure", "ValueError: bad", 1)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.wait()

    def measure_leaves_early(self) -> None:
        if self.rank == 1:
            os._exit(0)
        self.wait_for("rank-1.exit")
        self.lose_peer()

    def measure_leaves_nothing(self) -> None:
        os._exit(0)

    def measure_oom(self) -> None:
        if self.rank == 1:
            self.save("oom", "measure", "can't allocate memory: you tried to allocate 9 bytes")
            self.wait()
        self.wait_for("rank-1.json")
        self.lose_peer()  # the launcher sees this rank fail first, as real launchers do

    def measure_oom_without_record(self) -> None:
        if self.rank == 1:
            print("terminate called after throwing an instance of 'std::bad_alloc'", flush=True)
            os.abort()
        self.wait()

    def measure_oom_code(self) -> None:
        if self.rank == 1:
            os._exit(77)
        self.wait()

    def measure_nan(self) -> None:
        self.end("nan", "measure", "step 4: loss nan, gradient norm 1.0", 78)

    def init_refused(self) -> None:
        self.end("refused", "spawn", "offload=streamed: is not known here", 79)

    def measure_nan_figures(self) -> None:
        if self.rank == 1:
            text = self.files.record(1, "ok", phase="done", step_seconds=(7.5,))
            (self.folder / "rank-1.json").write_text(text.replace("7.5", "NaN"))
            os._exit(0)

    def measure_torn(self) -> None:
        if self.rank == 1:
            (self.folder / "rank-1.json").write_text('{"version": 1, "type": "RankRec')
            os._exit(0)

    def measure_zero_seconds(self) -> None:
        if self.rank == 1:
            self.end("ok", "done", "", 0, step_seconds=(0.0,) * self.settings.steps, peak_memory_bytes=1)

    def measure_noisy(self) -> None:
        for number in range(50):
            sys.stdout.write(f"{number:02}" + "x" * 2**20 + "\n")
        print("the last line", flush=True)

    def measure_grandchild(self) -> None:
        sleeper = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"]
        subprocess.Popen(sleeper, start_new_session=True)

    def measure_grandchild_and_hang(self) -> None:
        self.measure_grandchild()
        (self.folder / f"hanging-{self.rank}").touch()
        self.wait()

    def measure_writes_its_environment(self) -> None:
        (self.folder / f"environment-{self.rank}.json").write_text(json.dumps(dict(os.environ)))

    def start_never_starts(self) -> None:
        sys.exit("No module named strategist_runtime")

    def measure_hang_at_exit(self) -> None:
        self.save("ok", "done", "", peak_memory_bytes=1, step_seconds=(0.01,) * self.settings.steps)
        self.enter("done")
        self.wait()


def main() -> None:
    _, fault, *rest = sys.argv[1:]
    Rank(fault, Path(rest[rest.index("--out") + 1]), Path(rest[rest.index("--settings") + 1])).run()


if __name__ == "__main__":
    main()
