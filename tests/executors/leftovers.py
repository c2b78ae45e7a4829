"""Faults that leave processes, files or invalid records behind.

What must be removed after the trial is listed in the trial's folder, one name a line: ``pids``, ``ports``, ``paths``.
"""

import ctypes
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

SLEEP = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
LISTEN = """
import os, socket, sys, time
ours = socket.create_server(("127.0.0.1", 0))
with open(sys.argv[1], "a") as file:
    file.write(f"{ours.getsockname()[1]}\\n")
print(flush=True)
time.sleep(600)
"""
RESPAWN = """
import os, signal, sys, time
def again(*_):
    if os.fork():
        os._exit(0)
    os.setsid()
    os.execv(sys.executable, [sys.executable, "-c", sys.argv[1], sys.argv[1]])
signal.signal(signal.SIGTERM, again)
time.sleep(600)
"""


class Leftovers:
    """Mixin of the stand-in rank; a fault's name is ``FAULT@PHASE``."""

    folder: Path
    rank: int

    def note(self, name: str, value: object) -> None:
        with (self.folder / name).open("a") as file:
            file.write(f"{value}\n")

    def cause_fault(self, name: str) -> None:
        """Rank 1 has the fault and notes the time; rank 0 waits."""
        if self.rank == 1:
            self.note("fault-time", time.monotonic())
            getattr(self, "do_" + name.replace("-", "_"))()
        self.wait()

    def wait(self) -> None:
        while True:
            time.sleep(10)

    # Deaths of a rank.

    def do_kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def do_exit137(self) -> None:
        os._exit(137)

    def do_segv(self) -> None:
        ctypes.string_at(0)

    def do_raise(self) -> None:
        raise ValueError("the layer is not there")

    def do_abort(self) -> None:
        os.abort()

    # Hangs of a rank.

    def do_sleep(self) -> None:
        self.wait()

    def do_hold_the_gil(self) -> None:
        ctypes.PyDLL(None).sleep(600)

    def do_stop(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def do_block_signals(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
        self.wait()

    # Deaths and hangs of ancestors.

    def do_kill_launcher(self) -> None:
        os.kill(parent(os.getppid()), signal.SIGKILL)

    def do_stop_launcher(self) -> None:
        os.kill(parent(os.getppid()), signal.SIGSTOP)

    def do_kill_supervisor(self) -> None:
        os.kill(os.getppid(), signal.SIGKILL)

    def do_stop_supervisor(self) -> None:
        os.kill(os.getppid(), signal.SIGSTOP)

    def do_kill_trial_supervisor(self) -> None:
        os.kill(parent(parent(os.getppid())), signal.SIGKILL)

    # Child processes.

    def start(self, code: str, *arguments: str, **options: object) -> subprocess.Popen[bytes]:
        child = subprocess.Popen([sys.executable, "-c", code, *arguments], **options)
        self.note("pids", child.pid)
        return child

    def do_child(self) -> None:
        self.start(SLEEP)
        os._exit(3)

    def do_daemon(self) -> None:
        """In a new session, with a parent that has ended."""
        self.start(f"import os\nif os.fork(): os._exit(0)\nos.setsid()\n{SLEEP}").wait()
        os._exit(3)

    def do_daemon_without_environment(self) -> None:
        self.start(SLEEP, env={}, start_new_session=True)
        os._exit(3)

    def do_stopped_daemon(self) -> None:
        os.kill(self.start(SLEEP, start_new_session=True).pid, signal.SIGSTOP)
        os._exit(3)

    def do_respawning_daemon(self) -> None:
        self.start(RESPAWN, RESPAWN, start_new_session=True)
        os._exit(3)

    def do_fork_storm(self) -> None:
        for _ in range(6):  # 64 processes; new ones may start while others are terminated
            if os.fork() == 0:
                os.setsid()
            self.note("pids", os.getpid())
        self.wait()

    def do_listening_daemon(self) -> None:
        daemon = self.start(LISTEN, str(self.folder / "ports"), start_new_session=True, stdout=subprocess.PIPE)
        assert daemon.stdout is not None
        daemon.stdout.readline()
        os._exit(3)

    # Files.

    def do_temporary_files(self) -> None:
        place = Path(tempfile.mkdtemp())
        self.note("paths", place)
        for number in range(500):
            (place / f"{number}").write_bytes(b"x" * 100)
        (place / "deep").mkdir(mode=0o500)
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(place / "socket"))
        os._exit(3)

    def do_shared_memory(self) -> None:
        self.share()
        self.wait()

    def do_shared_memory_and_kill(self) -> None:
        self.share()
        time.sleep(0.5)  # files that live for less than two polls are not attributed to the trial
        self.do_kill()

    def share(self) -> None:
        """Shared memory like a data loader's: held by a descriptor, and never unlinked."""
        for kind in ("psm", "torch", "sem.mp"):
            name = f"/dev/shm/{kind}-{os.getpid()}"
            self.note("paths", name)
            file = os.open(name, os.O_CREAT | os.O_RDWR)
            os.truncate(file, 4096)

    def do_full_disk(self) -> None:
        """Limits the size of files, like a quota."""
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))
        (self.folder / "rank-1.json").write_bytes(b"x" * 1000)

    def do_use_up_descriptors(self) -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        held = []
        while True:
            held.append(open(os.devnull))  # noqa: SIM115 - never closed is the fault

    def do_log_binary(self) -> None:
        os.write(1, bytes(range(256)) * 8192 + b"\x1b[2J")
        os._exit(3)

    # Invalid records.

    def put(self, name: str, data: bytes) -> None:
        (self.folder / name).write_bytes(data)
        os._exit(0)

    def do_empty_record(self) -> None:
        self.put("rank-1.json", b"")

    def do_binary_record(self) -> None:
        self.put("rank-1.json", bytes(range(256)))

    def do_list_as_record(self) -> None:
        self.put("rank-1.json", b"[[[[1]]]]")

    def do_directory_as_record(self) -> None:
        (self.folder / "rank-1.json").mkdir()
        os._exit(0)

    def do_dangling_record(self) -> None:
        (self.folder / "rank-1.json").symlink_to("/nowhere/at/all")
        os._exit(0)

    def do_binary_phase(self) -> None:
        self.put("rank-1.phase", bytes(range(256)))

    def do_binary_progress(self) -> None:
        self.put("progress.jsonl", bytes(range(256)) * 100)

    def do_remove_the_folder(self) -> None:
        for path in self.folder.glob("rank-*"):
            path.unlink()
        os._exit(0)


def places(tag: str) -> list[Path]:
    """Temporary folders of trials with this text in their tag. A process id alone is no name: the system uses it again."""
    found = list[Path]()
    for path in Path(tempfile.gettempdir()).glob("strategist-*/.owner"):
        with suppress(OSError):  # removed meanwhile by another process
            if tag in path.read_text():
                found.append(path.parent)
    return found


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


LEFTOVERS = tuple(name.removeprefix("do_").replace("_", "-") for name in vars(Leftovers) if name.startswith("do_"))
