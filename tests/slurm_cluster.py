"""A real Slurm cluster of two nodes on this machine: munged, slurmctld and two slurmd in a temporary folder.

Needs root (slurmd starts jobs as their user) and Debian's slurm-wlm and munge.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ports import free_ports

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "squeue", "sinfo")
CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,batch_sched_delay=0
ReturnToService=2
MpiDefault=none
KillWait=2
InactiveLimit=0
JobRequeue=1
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs={cores} RealMemory={memory_mib}
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs={cores} RealMemory={memory_mib}
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


def missing() -> str:
    """The reason why no cluster can be started; empty if one can."""
    if os.geteuid() != 0:
        return "slurmd runs as root"
    absent = next((name for name in PROGRAMS if shutil.which(name) is None), "")
    return f"{absent} is not installed (Debian: apt install slurm-wlm munge)" if absent else ""


@dataclass(kw_only=True)
class SlurmCluster:
    """A running cluster; ``environment`` makes commands find the cluster."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def output_of(self, *command: str) -> str:
        """Output of a Slurm command."""
        environment = {**os.environ, **self.environment}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout

    @classmethod
    @contextmanager
    def started(cls) -> "Iterator[SlurmCluster]":
        folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
        folder.chmod(0o755)
        cluster, daemons = cls(folder=folder), []
        try:
            (folder / "state").mkdir()
            for node in ("n1", "n2"):
                (folder / f"spool.{node}").mkdir()
            names = dict(zip(("port", "first", "second"), free_ports(3), strict=True))
            (folder / "slurm.conf").write_text(CONF.format(folder=folder, host=socket.gethostname(), **names, **_size()))
            (folder / "munge.key").write_bytes(os.urandom(1024))
            (folder / "munge.key").chmod(0o400)
            daemons += cluster._start()
            cluster._await_nodes(daemons)
            yield cluster
        finally:
            for daemon in reversed(daemons):
                daemon.send_signal(signal.SIGTERM)
            for daemon in daemons:
                try:
                    daemon.wait(5)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()
            shutil.rmtree(folder, ignore_errors=True)

    def _start(self) -> "list[subprocess.Popen[bytes]]":
        files = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munge.pid", "seed-file": "munge.seed"}
        places = [f"--{option}={self.folder / name}" for option, name in files.items()]
        munge = self._daemon("munged", "--foreground", "--force", *places, f"--log-file={self.folder / 'munge.log'}")
        while not (self.folder / "munge.socket").exists() and munge.poll() is None:
            time.sleep(0.05)
        return [munge, self._daemon("slurmctld", "-D"), *(self._daemon("slurmd", "-D", "-N", node) for node in ("n1", "n2"))]

    def _daemon(self, *command: str) -> "subprocess.Popen[bytes]":
        with (self.folder / f"{command[0]}.out").open("ab") as out:
            streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
            return subprocess.Popen(command, env={**os.environ, **self.environment}, start_new_session=True, **streams)

    def _await_nodes(self, daemons: "list[subprocess.Popen[bytes]]") -> None:
        """Waits until both nodes are idle; the test's timeout is the limit.

        Raises:
            RuntimeError: a daemon ended; with the daemons' logs.
        """
        while True:
            if any(daemon.poll() is not None for daemon in daemons):
                logs = "".join(path.read_text(errors="replace")[-800:] for path in self.folder.glob("*.log"))
                raise RuntimeError(f"Slurm did not start: {logs}")
            try:
                if self.output_of("sinfo", "--noheader", "--format=%T").split() == ["idle"]:
                    return
            except subprocess.CalledProcessError:
                pass
            time.sleep(0.1)


def _size() -> dict[str, int]:
    """Cores and memory of each node; slurmd refuses a node that claims more than the machine has."""
    memory_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return {"cores": min(2, os.cpu_count() or 1), "memory_mib": min(8000, memory_mib // 2)}
