"""Ranks on several hosts: one torchrun a host, each started through a remote shell and ended with it.

``python -m strategist.executors.hosts start`` stands where torchrun stands for one machine: it starts an agent on every host, and
ends with the first that fails. ``... agent`` runs on a host: it starts torchrun there, tells gloo and NCCL which network leads to
the others, and ends all that it started when its standard input closes, which it does however the other end of a remote shell goes.
The trial's folder lies on a file system that all hosts share. Standard library only: an agent must start fast.
"""

import argparse
import fcntl
import os
import random
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strategist.errors import InputError
from strategist.executors.keeper import PARENT
from strategist.executors.processes import TAG, adopt_orphans, die_with_parent, end

SSH = "ssh -o BatchMode=yes {host} {command}"
PORTS = range(20_000, 32_000)
"""Below those that Linux hands out by itself."""

SIOCGIFADDR = 0x8915  # linux/sockios.h
STAYS = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "VIRTUAL_ENV")
"""Variables that a host has of its own."""


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """Where ranks run, equally many on each. ``names`` are what the remote shell knows hosts by, each with its address behind ``=``
    where that is another; ``shell`` runs a command on one: words, with {host} and {command}.
    """

    names: tuple[str, ...]
    shell: str = SSH

    def __post_init__(self) -> None:
        known = [name.partition("=")[0] for name in self.names]
        if len(set(known)) < len(known) or not all(known):
            raise InputError(f"--hosts {','.join(self.names)}", "names each host once", "write e.g. --hosts node1,node2=10.0.0.2")
        if "{command}" not in self.shell or "{host}" not in self.shell:
            raise InputError(f"--remote-shell {self.shell}", "has no place for {host} and {command}", f"write e.g. '{SSH}'")

    def launcher(self, ranks: int, restarts: int = 0, rendezvous: str = "static") -> tuple[str, ...]:
        """The command that starts ``ranks`` of the command after it, which meet as ``rendezvous`` says.

        Raises:
            InputError: they don't go round the hosts.
        """
        if ranks % len(self.names):
            raise InputError(f"{ranks} ranks on {len(self.names)} hosts", "are not equally many on each", "plan for these hosts")
        return (
            sys.executable, "-m", "strategist.executors.hosts", "start", f"--hosts={','.join(self.names)}", f"--shell={self.shell}",
            f"--rendezvous={rendezvous}", f"--nproc-per-node={ranks // len(self.names)}", f"--max-restarts={restarts}", "--",
        )  # fmt: skip


def parsed(names: str, shell: str = SSH) -> Hosts:
    """Hosts as people write them, with commas between.

    Raises:
        InputError: a name is none or stands twice, or the shell has no place for host and command.
    """
    return Hosts(names=tuple(name.strip() for name in names.split(",")), shell=shell)


def _start(options: argparse.Namespace) -> int:
    """Starts an agent on each host; the exit code of the first that fails, once all have ended."""
    hosts, port, woken = options.hosts.split(","), random.choice(PORTS), _wakes(signal.SIGCHLD, signal.SIGTERM)
    agents = [_agent_on(hosts, number, port, options) for number in range(len(hosts))]
    code = 0
    while any(agent.poll() is None for agent in agents):
        select.select([woken], [], [])
        code = code or (128 + signal.SIGTERM if signal.SIGTERM in os.read(woken, 4096) else 0)
        code = code or next((agent.returncode for agent in agents if agent.poll()), 0)
        for agent in agents if code else ():  # ranks of the others would wait for those that are gone until a deadline passes
            if agent.stdin is not None:
                agent.stdin.close()
    code = code or next((agent.returncode for agent in agents if agent.returncode), 0)
    return code if code >= 0 else 128 - code


def _agent_on(hosts: Sequence[str], number: int, port: int, options: argparse.Namespace) -> "subprocess.Popen[bytes]":
    """The remote shell of one host. The first host's address is where the ranks meet."""
    name, _, address = hosts[number].partition("=")
    first = hosts[0].rpartition("=")[2]
    command = [
        "env", *_variables(os.environ), sys.executable, "-m", "strategist.executors.hosts", "agent", f"--peer={first}",
        f"--tag=host-{number}-of-{os.environ[TAG]}",
        *((f"--address={address}",) if address else ()), f"--port={port}", f"--number={number}", f"--hosts={len(hosts)}",
        f"--rendezvous={options.rendezvous}", f"--nproc-per-node={options.nproc_per_node}",
        f"--max-restarts={options.max_restarts}", "--", *options.command,
    ]  # fmt: skip
    places = {"{host}": name, "{command}": shlex.join(command)}
    words = [places.get(word, word.replace("{host}", name)) for word in shlex.split(options.shell)]
    ours = {name: value for name, value in os.environ.items() if name != TAG}  # it ends with this process, not with the trial's
    return subprocess.Popen(words, stdin=subprocess.PIPE, env=ours)


def _variables(environment: Mapping[str, str]) -> list[str]:
    """What a host's ranks are to have in their environment, which holds only what a trial may see."""
    return [f"{name}={value}" for name, value in environment.items() if name not in (*STAYS, TAG, PARENT)]


def _agent(options: argparse.Namespace) -> int:
    """Runs torchrun on this host until it ends, or until nobody listens any more."""
    adopt_orphans()
    address = options.address or _address_towards(options.peer)
    environment = {**_network(address), **os.environ, TAG: options.tag}
    woken = _wakes(signal.SIGCHLD, signal.SIGTERM)
    ranks = subprocess.Popen(
        [*_torchrun(options, address), *options.command], stdin=subprocess.DEVNULL, env=environment, preexec_fn=_dies_with_agent
    )
    try:
        while ranks.poll() is None:
            ready, _, _ = select.select([sys.stdin.fileno(), woken], [], [])
            if (sys.stdin.fileno() in ready and not os.read(sys.stdin.fileno(), 4096)) or (
                woken in ready and signal.SIGTERM in os.read(woken, 4096)
            ):
                return 1
    finally:
        end(options.tag, grace_seconds=0.5)
    return ranks.returncode if ranks.returncode >= 0 else 128 - ranks.returncode


def _dies_with_agent() -> None:
    die_with_parent(signal.SIGKILL)


def _wakes(*numbers: signal.Signals) -> int:
    """The reading end of a pipe that gets the number of each of these signals."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in numbers:
        signal.signal(number, _heard)
    return reader


def _heard(number: int, frame: object) -> None:
    """The pipe has it."""


def _torchrun(options: argparse.Namespace, address: str) -> tuple[str, ...]:
    """The launcher of this host's ranks."""
    meeting = (
        (
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={options.peer}:{options.port}",
            f"--rdzv-id={options.tag.partition('-of-')[2]}",
            f"--rdzv-conf=is_host={int(options.number == 0)}",  # torch would look for the address under the machine's name
        )
        if options.rendezvous == "c10d"
        else (f"--node-rank={options.number}", f"--master-addr={options.peer}", f"--master-port={options.port}")
    )
    return (
        sys.executable, "-m", "torch.distributed.run", f"--nnodes={options.hosts}", *meeting, f"--local-addr={address}",
        f"--nproc-per-node={options.nproc_per_node}", f"--max-restarts={options.max_restarts}", "--no-python",
    )  # fmt: skip


def _address_towards(peer: str) -> str:
    """This host's own address on the way to another; nothing is sent."""
    family, _, _, _, place = socket.getaddrinfo(peer, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as asked:
        asked.connect(place)
        return str(asked.getsockname()[0])


def _network(address: str) -> dict[str, str]:
    """Variables that name the network with this address: gloo would take the one that the host's name has, often the loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                known = fcntl.ioctl(asked.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # a network without an address
                continue
            if socket.inet_ntoa(known[20:24]) == address:
                return {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": name}
    return {}


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="strategist.executors.hosts")
    roles = parser.add_subparsers(dest="role", required=True)
    start, agent = roles.add_parser("start"), roles.add_parser("agent")
    start.add_argument("--hosts", required=True)
    start.add_argument("--shell", required=True)
    for name in ("--tag", "--peer", "--address"):
        agent.add_argument(name, default="")
    for name in ("--hosts", "--port", "--number"):
        agent.add_argument(name, type=int, required=True)
    for role in (start, agent):
        role.add_argument("--rendezvous", required=True)
        for name in ("--nproc-per-node", "--max-restarts"):
            role.add_argument(name, type=int, required=True)
        role.add_argument("command", nargs="+")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    options = _options(sys.argv[1:])
    sys.exit(_start(options) if options.role == "start" else _agent(options))
