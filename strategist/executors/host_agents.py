"""Host agents: one torchrun per host, started through a remote shell, Slurm or Ray, and ended together with it.

``python -m strategist.executors.host_agents start`` takes the place of torchrun on one machine: it starts an agent on every
host, and ends all when the first one fails. ``... agent`` runs on a host: it starts torchrun there, and tells gloo and NCCL
which network interface leads to the other hosts. When its standard input closes, which happens however the other end terminates,
it ends everything that it started and removes the temporary files. The agent of the first host writes the rendezvous address
into the trial's folder, which all hosts share; the other agents wait for it. Standard library only: an agent must start fast.
"""

import fcntl
import json
import os
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from strategist.errors import InputError
from strategist.executors import temporary_files
from strategist.executors.process_supervisor import PARENT
from strategist.executors.processes import TAG, adopt_orphans, die_with_parent, end, new_tag
from strategist.frozen import frozen

RENDEZVOUS_FILE = "launcher.meeting"
"""Rendezvous file: the agent of the first host writes its address and a free port into it."""

OUTPUT = "host-{}.log"
"""Log of a command that runs once per host, on every host but the first, whose output goes to the launcher's log."""

RUNNING = "agent-{}.running"
"""File that exists while an agent has processes running."""

RENDEZVOUS_SECONDS = 120.0
SIOCGIFADDR = 0x8915  # linux/sockios.h
HOST_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "VIRTUAL_ENV")
"""Variables that each host keeps from its own environment."""

TOKEN = "SLURM_JWT"
"""Authentication token of srun; it is not passed to ranks."""

RAY = "RAY_"
"""Prefix of Ray's variables, one of which may be a token; they are for the launcher, not for ranks."""


@frozen
class Order:
    """What agents start, and where.

    ranks_per_node: ranks of the command on each node.
    restarts: how often torchrun restarts the ranks.
    hosts, remote: the hosts, and the remote shell that reaches them.
    srun: arguments of srun, if Slurm starts the agents.
    number: number of the agent's host; negative if Slurm gives it.
    address: address of the agent's host; empty if unknown.
    tag: tag of the trial's processes.
    each: the command runs once per host, and starts the ranks itself.
    """

    folder: str
    nodes: int
    ranks_per_node: int
    restarts: int
    rendezvous: str
    hosts: tuple[str, ...] = ()
    remote: str = ""
    srun: tuple[str, ...] = ()
    number: int = -1
    address: str = ""
    tag: str = ""
    each: bool = False

    def words(self, role: str) -> tuple[str, ...]:
        """The command of the process with this role; the command to start follows it."""
        return (sys.executable, "-m", "strategist.executors.host_agents", role, json.dumps(asdict(self)))


def _start(order: Order, command: Sequence[str]) -> int:
    """Starts the agents; returns the exit code of the first that fails, once all have ended."""
    woken = _signal_pipe(signal.SIGCHLD, signal.SIGTERM)
    order = replace(order, tag=os.environ[TAG])
    if order.srun:
        starts = [_spawn(["srun", *order.srun, *order.words("agent"), *command])]
    else:
        starts = [_start_agent(number, order, command) for number in range(len(order.hosts))]
    code = 0
    while any(start.poll() is None for start in starts):
        select.select([woken], [], [])
        code = code or (128 + signal.SIGTERM if signal.SIGTERM in os.read(woken, 4096) else 0)
        code = code or next((start.returncode for start in starts if start.poll()), 0)
        for start in starts if code else ():  # ranks on the other hosts would wait for the lost ones until a deadline passes
            _end_start(start, by_signal=bool(order.srun))
    code = code or next((start.returncode for start in starts if start.returncode), 0)
    return code if code >= 0 else 128 - code


def _end_start(start: "subprocess.Popen[bytes]", *, by_signal: bool) -> None:
    """Ends what was started on hosts: srun by a signal, a remote shell by closing its standard input."""
    if start.stdin is not None:
        start.stdin.close()
    if by_signal and start.poll() is None:
        start.terminate()


def _start_agent(number: int, order: Order, command: Sequence[str]) -> "subprocess.Popen[bytes]":
    """The remote shell that runs the agent of one host."""
    name, _, address = order.hosts[number].partition("=")
    agent = replace(order, number=number, address=address or name).words("agent")
    placeholders = {"{host}": name, "{command}": shlex.join(["env", *variables(os.environ), *agent, *command])}
    return _spawn([placeholders.get(word, word.replace("{host}", name)) for word in shlex.split(order.remote)])


def _spawn(words: Sequence[str]) -> "subprocess.Popen[bytes]":
    """Starts a process without the trial's tag, which ends with this one: it must not end with the tagged processes, because it
    has to end others first.
    """
    untagged_environment = {name: value for name, value in os.environ.items() if name != TAG}
    return subprocess.Popen(
        words, stdin=subprocess.PIPE, env=untagged_environment, preexec_fn=partial(die_with_parent, signal.SIGTERM)
    )


def variables(environment: Mapping[str, str]) -> list[str]:
    """Environment of the ranks on a host, as NAME=VALUE; it holds only variables that a trial may get."""
    excluded = (*HOST_VARIABLES, TAG, PARENT)
    return [f"{name}={value}" for name, value in environment.items() if name not in excluded and not name.startswith(RAY)]


def _agent(order: Order, command: Sequence[str]) -> int:
    """Runs torchrun on this host until it ends, or until the agent's standard input closes."""
    adopt_orphans()
    woken = _signal_pipe(signal.SIGCHLD, signal.SIGTERM)
    number = order.number if order.number >= 0 else int(os.environ["SLURM_NODEID"])
    mark = Path(order.folder, RUNNING.format(number))
    mark.touch()
    peer, port = _rendezvous(Path(order.folder), number, order.address)
    address = order.address or _address_towards(peer)
    tag = f"host-{number}-of-{order.tag}"
    inherited = {name: value for name, value in os.environ.items() if name != TOKEN}
    temporary_folder = _temporary(order.tag.rsplit(".", 3)[0])
    environment = {
        **_interface_variables(address), **inherited, **_rendezvous_variables(order, number, peer, port),
        **temporary_files.environment(temporary_folder), TAG: tag,
    }  # fmt: skip
    launched = [*(() if order.each else _torchrun(order, number, address, peer, port)), *command]
    if order.each and number:
        _redirect_output(Path(order.folder, OUTPUT.format(number)))
    try:
        ranks = subprocess.Popen(
            launched, stdin=subprocess.DEVNULL, env=environment, preexec_fn=partial(die_with_parent, signal.SIGKILL)
        )
        return _wait_for(ranks, woken)
    finally:
        end(tag, grace_seconds=0.5)
        temporary_files.clear(temporary_folder)
        mark.unlink(missing_ok=True)


def _temporary(study: str) -> Path:
    """A folder for the temporary files of this agent. Folders of killed agents of the study are removed: Slurm kills agents."""
    temporary_files.sweep(study)
    return temporary_files.make(new_tag(study))


def _wait_for(ranks: "subprocess.Popen[bytes]", woken: int) -> int:
    """Exit code of the started process once it has ended; 1 if standard input closes or SIGTERM arrives first."""
    listening = sys.stdin.fileno()
    while ranks.poll() is None:
        ready, _, _ = select.select([listening, woken], [], [])
        received = os.read(woken, 4096) if woken in ready else b""
        if signal.SIGTERM in received or (listening in ready and not os.read(listening, 4096)):
            return 1
    return ranks.returncode if ranks.returncode >= 0 else 128 - ranks.returncode


def _redirect_output(path: Path) -> None:
    """Redirects the output of this process and its children into a file."""
    with path.open("wb") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())


def _rendezvous(folder: Path, number: int, address: str) -> tuple[str, int]:
    """Rendezvous address and port; the agent of the first host chooses a free port and writes both, the others wait for them.

    Raises:
        TimeoutError: the first agent did not write them in time.
    """
    place = folder / RENDEZVOUS_FILE
    if number == 0:
        with socket.socket() as free:
            free.bind(("", 0))
            port = int(free.getsockname()[1])
        draft = place.with_suffix(".draft")
        draft.write_text(f"{address or _own_address()} {port}", encoding="ascii")
        draft.replace(place)
    deadline = time.monotonic() + RENDEZVOUS_SECONDS
    while not place.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{place}: is not there; all hosts must see the trial's folder")
        time.sleep(0.05)
    peer, port_text = place.read_text(encoding="ascii").split()
    return peer, int(port_text)


def _own_address() -> str:
    """Address of this node by its name in Slurm, otherwise by its host name."""
    for name in (os.environ.get("SLURMD_NODENAME", ""), socket.gethostname()):
        try:
            return socket.gethostbyname(name) if name else ""
        except OSError:
            continue
    return "127.0.0.1"


def _signal_pipe(*numbers: signal.Signals) -> int:
    """Read end of a pipe that receives the number of each of these signals."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in numbers:
        signal.signal(number, _ignore_signal)
    return reader


def _ignore_signal(number: int, frame: object) -> None:
    """Does nothing; the signal is in the wakeup pipe."""


def _rendezvous_variables(order: Order, number: int, peer: str, port: int) -> dict[str, str]:
    """Variables that tell a command its host's number and the rendezvous; those with the prefix PET are torchrun's."""
    if not order.each:
        return {}
    host_variables = {"NNODES": str(order.nodes), "NODE_RANK": str(number), "MASTER_ADDR": peer, "MASTER_PORT": str(port)}
    return {**host_variables, "RDZV_ENDPOINT": f"{peer}:{port}", **{f"PET_{name}": value for name, value in host_variables.items()}}


def _torchrun(order: Order, number: int, address: str, peer: str, port: int) -> tuple[str, ...]:
    """The launcher of this host's ranks."""
    rendezvous_options = (
        (
            "--rdzv-backend=c10d", f"--rdzv-endpoint={peer}:{port}", f"--rdzv-id={order.tag}",
            f"--rdzv-conf=is_host={int(number == 0)}",  # torch would compare the address with that of the host name
        )
        if order.rendezvous == "c10d"
        else (f"--node-rank={number}", f"--master-addr={peer}", f"--master-port={port}")
    )  # fmt: skip
    return (
        sys.executable, "-m", "torch.distributed.run", f"--nnodes={order.nodes}", *rendezvous_options, f"--local-addr={address}",
        f"--nproc-per-node={order.ranks_per_node}", f"--max-restarts={order.restarts}", "--no-python",
    )  # fmt: skip


def _address_towards(peer: str) -> str:
    """Address of the interface of this host that leads to the peer; no packet is sent."""
    family, _, _, _, peer_address = socket.getaddrinfo(peer, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(peer_address)
        return str(probe.getsockname()[0])


def _interface_variables(address: str) -> dict[str, str]:
    """Variables that name the interface with this address: gloo would use the one of the host name, which is often the loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                reply = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # an interface without an address
                continue
            if socket.inet_ntoa(reply[20:24]) == address:
                return {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": name}
    return {}


if __name__ == "__main__":
    role, given, *command = sys.argv[1:]
    order = Order(**json.loads(given))
    try:
        sys.exit(_start(order, command) if role == "start" else _agent(order, command))
    except (InputError, TimeoutError) as error:
        sys.exit(f"{role} {order.number}: {error}")
