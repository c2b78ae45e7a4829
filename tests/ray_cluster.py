"""A real Ray cluster of two nodes with one CPU each on this machine's loopback, in a temporary folder; terminated at the end."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from formats.frameworks import INSTALLED
from ports import free_ports

from strategist.executors.processes import die_with_parent

RAY = INSTALLED / "ray"
SCRIPTS = (sys.executable, "-m", "ray.scripts.scripts")
COMMON = ("--num-cpus=1", "--num-gpus=0", "--min-worker-port=0", "--max-worker-port=0", "--object-store-memory=80000000", "--block")
MARK = "RAY_TEST_NODE"


def missing() -> str:
    """The reason why no cluster can be started; empty if one can."""
    return "" if RAY.exists() else "ray is not installed: make frameworks"


@dataclass(kw_only=True)
class RayCluster:
    """A running cluster; ``environment`` makes commands find Ray and the cluster."""

    folder: Path
    port: int
    nodes: "dict[str, subprocess.Popen[bytes]]" = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"127.0.0.2:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """Variables of commands; some are needed by Ray's processes only."""
        packages = [str(RAY), *filter(None, [os.environ.get("PYTHONPATH")])]
        programs = [str(Path(sys.executable).parent), os.environ["PATH"]]
        return {
            "PYTHONPATH": os.pathsep.join(packages), "PATH": os.pathsep.join(programs),
            "RAY_ADDRESS": self.address, "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": str(self.folder), "OMP_NUM_THREADS": "1",
        }  # fmt: skip

    @classmethod
    @contextmanager
    def started(cls) -> "Iterator[RayCluster]":
        (port,) = free_ports(1, "127.0.0.2")
        cluster = cls(folder=Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp")), port=port)  # sockets need short paths
        try:
            cluster.begin("head")
            cluster.begin("worker")
            cluster.await_nodes(2)
            yield cluster
        finally:
            for name in tuple(cluster.nodes):
                cluster.lose(name)
            shutil.rmtree(cluster.folder, ignore_errors=True)

    def begin(self, name: str) -> None:
        """Starts a node."""
        if name == "head":
            where = ["--head", f"--port={self.port}", "--node-ip-address=127.0.0.2", "--include-dashboard=false",
                     f"--temp-dir={self.folder}"]  # fmt: skip
        else:
            where = [f"--address={self.address}", "--node-ip-address=127.0.0.3"]
        environment = {**os.environ, **self.environment, MARK: self._mark(name)}
        environment.pop("RAY_ADDRESS")
        with (self.folder / f"{name}.out").open("ab") as out:
            streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
            command = [*SCRIPTS, "start", *where, *COMMON]
            self.nodes[name] = subprocess.Popen(command, env=environment, preexec_fn=_ends_with_tests, **streams)

    def lose(self, name: str) -> None:
        """Kills all of a node's processes."""
        mark = f"\0{MARK}={self._mark(name)}\0".encode()
        while left := [pid for pid in filter(str.isdigit, os.listdir("/proc")) if mark in b"\0" + _environment(pid)]:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.02)
            self.nodes[name].poll()

    def await_nodes(self, count: int) -> None:
        """Waits until ``count`` nodes are alive; the test's timeout is the limit.

        Raises:
            RuntimeError: a node ended; with the nodes' logs.
        """
        script = "import ray, sys; ray.init(logging_level='error'); print(sum(node['Alive'] for node in ray.nodes()))"
        environment = {**os.environ, **self.environment}
        while all(node.poll() is None for node in self.nodes.values()):
            done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
            if done.stdout.strip() == str(count):
                return
        raise RuntimeError("".join(path.read_text(errors="replace")[-1500:] for path in self.folder.glob("*.out")))

    def _mark(self, name: str) -> str:
        return f"{self.folder}/{name}"


def _ends_with_tests() -> None:
    die_with_parent(signal.SIGTERM)


def _environment(pid: str) -> bytes:
    try:
        return Path("/proc", pid, "environ").read_bytes()
    except OSError:  # ended meanwhile
        return b""
