"""Host agents: one torchrun a host, started through a remote shell, Slurm or Ray, and ended with it.

``python -m strategist.executors.host_agents start`` stands where torchrun stands for one machine: it has an agent started on every
host, and ends with the first that fails. ``... agent`` runs on a host: it starts torchrun there, tells gloo and NCCL which network
leads to the others, and ends all that it started, with its temporary files, when its standard input closes, which it does however
the other end goes. The first host's agent says in the trial's folder, which all hosts share, where ranks meet; the others wait for
that. Standard library only: an agent must start fast.
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
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from strategist.errors import InputError
from strategist.executors import temporary_files
from strategist.executors.process_supervisor import PARENT
from strategist.executors.processes import TAG, adopt_orphans, die_with_parent, end, new_tag

MEETING = "launcher.meeting"
"""The file in which the first host's agent says where ranks meet: its address and a free port."""

OUTPUT = "host-{}.log"
"""What a command that is run once on each host writes on others than the first, whose output is the launcher's."""

RUNNING = "agent-{}.running"
"""The file of an agent that has not ended what it started."""

MEETING_SECONDS = 120.0
SIOCGIFADDR = 0x8915  # linux/sockios.h
STAYS = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "VIRTUAL_ENV")
"""Variables that a host has of its own."""

TOKEN = "SLURM_JWT"
"""What srun may have to show Slurm; no rank needs it."""

RAY = "RAY_"
"""Variables for Ray, of which one may be a token, begin with it: a launcher's, not a rank's."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is to be started where: on ``hosts`` that are reached by ``remote``, or on nodes, by ``srun`` with these arguments. An
    agent gets its ``number`` (from Slurm where it is negative), its ``address`` where that is known, and the trial's ``tag``. It
    starts ``ranks_per_node`` ranks of the command, or, with ``each``, the command itself, which starts them."""

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
        """The command of the process that fills the role; what it is to start follows."""
        return (sys.executable, "-m", "strategist.executors.host_agents", role, json.dumps(asdict(self)))


def _start(order: Order, command: Sequence[str]) -> int:
    """Has agents started; the exit code of the first that fails, once all have ended."""
    woken = _wakes(signal.SIGCHLD, signal.SIGTERM)
    order = replace(order, tag=os.environ[TAG])
    if order.srun:
        starts = [_begun(["srun", *order.srun, *order.words("agent"), *command])]
    else:
        starts = [_agent_on(number, order, command) for number in range(len(order.hosts))]
    code = 0
    while any(start.poll() is None for start in starts):
        select.select([woken], [], [])
        code = code or (128 + signal.SIGTERM if signal.SIGTERM in os.read(woken, 4096) else 0)
        code = code or next((start.returncode for start in starts if start.poll()), 0)
        for start in starts if code else ():  # ranks of the others would wait for those that are gone until a deadline passes
            _end_start(start, by_signal=bool(order.srun))
    code = code or next((start.returncode for start in starts if start.returncode), 0)
    return code if code >= 0 else 128 - code


def _end_start(start: "subprocess.Popen[bytes]", *, by_signal: bool) -> None:
    """Ends what was started on hosts: Slurm's command by a signal, a remote shell by closing its input."""
    if start.stdin is not None:
        start.stdin.close()
    if by_signal and start.poll() is None:
        start.terminate()


def _agent_on(number: int, order: Order, command: Sequence[str]) -> "subprocess.Popen[bytes]":
    """The remote shell of one host."""
    name, _, address = order.hosts[number].partition("=")
    agent = replace(order, number=number, address=address or name).words("agent")
    places = {"{host}": name, "{command}": shlex.join(["env", *variables(os.environ), *agent, *command])}
    return _begun([places.get(word, word.replace("{host}", name)) for word in shlex.split(order.remote)])


def _begun(words: Sequence[str]) -> "subprocess.Popen[bytes]":
    """A process that ends with this one, not with everything that has the trial's tag: it has others to end first."""
    ours = {name: value for name, value in os.environ.items() if name != TAG}
    return subprocess.Popen(words, stdin=subprocess.PIPE, env=ours, preexec_fn=_asked_to_end_with_parent)


def _asked_to_end_with_parent() -> None:
    die_with_parent(signal.SIGTERM)


def variables(environment: Mapping[str, str]) -> list[str]:
    """What a host's ranks are to have in their environment, which holds only what a trial may see."""
    ours = (*STAYS, TAG, PARENT)
    return [f"{name}={value}" for name, value in environment.items() if name not in ours and not name.startswith(RAY)]


def _agent(order: Order, command: Sequence[str]) -> int:
    """Runs torchrun on this host until it ends, or until its input is closed."""
    adopt_orphans()
    woken = _wakes(signal.SIGCHLD, signal.SIGTERM)
    number = order.number if order.number >= 0 else int(os.environ["SLURM_NODEID"])
    mark = Path(order.folder, RUNNING.format(number))
    mark.touch()
    peer, port = _meeting(Path(order.folder), number, order.address)
    address = order.address or _address_towards(peer)
    tag = f"host-{number}-of-{order.tag}"
    theirs = {name: value for name, value in os.environ.items() if name != TOKEN}
    place = _temporary(order.tag.rsplit(".", 3)[0])
    environment = {
        **_network(address),
        **theirs,
        **_place(order, number, peer, port),
        **temporary_files.environment(place),
        TAG: tag,
    }
    launched = [*(() if order.each else _torchrun(order, number, address, peer, port)), *command]
    if order.each and number:
        _say_into(Path(order.folder, OUTPUT.format(number)))
    try:
        ranks = subprocess.Popen(launched, stdin=subprocess.DEVNULL, env=environment, preexec_fn=_dies_with_agent)
        return _followed(ranks, woken)
    finally:
        end(tag, grace_seconds=0.5)
        temporary_files.clear(place)
        mark.unlink(missing_ok=True)


def _temporary(study: str) -> Path:
    """A folder of this agent for temporary files; those of agents of the study that were killed, as Slurm does, are removed."""
    temporary_files.sweep(study)
    return temporary_files.make(new_tag(study))


def _followed(ranks: "subprocess.Popen[bytes]", woken: int) -> int:
    """The exit code of what was started, once it has ended; 1 when its input is closed, or its end is requested."""
    listening = sys.stdin.fileno()
    while ranks.poll() is None:
        ready, _, _ = select.select([listening, woken], [], [])
        heard = os.read(woken, 4096) if woken in ready else b""
        if signal.SIGTERM in heard or (listening in ready and not os.read(listening, 4096)):
            return 1
    return ranks.returncode if ranks.returncode >= 0 else 128 - ranks.returncode


def _say_into(path: Path) -> None:
    """Output of this process and of those that it starts goes into a file."""
    with path.open("wb") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())


def _meeting(folder: Path, number: int, address: str) -> tuple[str, int]:
    """Where ranks meet, as the first host's agent says it; that one chooses a port that is free.

    Raises:
        TimeoutError: it says nothing.
    """
    place = folder / MEETING
    if number == 0:
        with socket.socket() as free:
            free.bind(("", 0))
            port = int(free.getsockname()[1])
        draft = place.with_suffix(".draft")
        draft.write_text(f"{address or _own_address()} {port}", encoding="ascii")
        draft.replace(place)
    patience = time.monotonic() + MEETING_SECONDS
    while not place.exists():
        if time.monotonic() > patience:
            raise TimeoutError(f"{place}: is not there; all hosts must see the trial's folder")
        time.sleep(0.05)
    peer, port_text = place.read_text(encoding="ascii").split()
    return peer, int(port_text)


def _own_address() -> str:
    """The address under the name that Slurm knows this node by, else under its own."""
    for name in (os.environ.get("SLURMD_NODENAME", ""), socket.gethostname()):
        try:
            return socket.gethostbyname(name) if name else ""
        except OSError:
            continue
    return "127.0.0.1"


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


def _place(order: Order, number: int, peer: str, port: int) -> dict[str, str]:
    """Variables that tell a command which of the hosts this is and where ranks meet; those in PET are torchrun's own."""
    if not order.each:
        return {}
    told = {"NNODES": str(order.nodes), "NODE_RANK": str(number), "MASTER_ADDR": peer, "MASTER_PORT": str(port)}
    return {**told, "RDZV_ENDPOINT": f"{peer}:{port}", **{f"PET_{name}": value for name, value in told.items()}}


def _torchrun(order: Order, number: int, address: str, peer: str, port: int) -> tuple[str, ...]:
    """The launcher of this host's ranks."""
    meeting = (
        (
            "--rdzv-backend=c10d", f"--rdzv-endpoint={peer}:{port}", f"--rdzv-id={order.tag}",
            f"--rdzv-conf=is_host={int(number == 0)}",  # torch would look for the address under the machine's name
        )
        if order.rendezvous == "c10d"
        else (f"--node-rank={number}", f"--master-addr={peer}", f"--master-port={port}")
    )  # fmt: skip
    return (
        sys.executable, "-m", "torch.distributed.run", f"--nnodes={order.nodes}", *meeting, f"--local-addr={address}",
        f"--nproc-per-node={order.ranks_per_node}", f"--max-restarts={order.restarts}", "--no-python",
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


if __name__ == "__main__":
    role, given, *command = sys.argv[1:]
    order = Order(**json.loads(given))
    try:
        sys.exit(_start(order, command) if role == "start" else _agent(order, command))
    except (InputError, TimeoutError) as error:
        sys.exit(f"{role} {order.number}: {error}")
