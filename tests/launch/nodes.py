"""Nodes on which jobs start: network namespaces with a link and their own host names; or this machine, for stubs."""

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from executors.network import available, two_hosts

NETNS = Path("/etc/netns")
"""Folder of files that replace those of /etc within a namespace (``ip netns exec``)."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node. ``enter`` is the prefix that runs a command there; empty for this machine. ``PROBE_HOST`` names the node."""

    name: str
    address: str
    enter: tuple[str, ...] = ()

    def command(self, *words: str) -> list[str]:
        """The command line that runs the words on this node."""
        return [*self.enter, "env", f"PROBE_HOST={self.name}", *words]


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """Two nodes, and a remote shell to both."""

    nodes: tuple[Node, Node]
    folder: Path
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def hosts(self) -> str:
        """Names and addresses, as ``--hosts`` expects."""
        return ",".join(f"{node.name}={node.address}" for node in self.nodes)

    @property
    def remote_shell(self) -> str:
        """A remote shell without ssh: a script that runs a command on a node, in the node's home folder."""
        path = self.folder / "remote"
        lines = ["#!/bin/sh", 'case "$1" in']
        for node in self.nodes:
            home = self.folder / f"home-{node.name}"
            home.mkdir(exist_ok=True)
            lines.append(f'{node.name}) cd {shlex.quote(str(home))} && exec {shlex.join(node.command("sh", "-c"))} "$2" ;;')
        path.write_text("\n".join([*lines, "esac", "exit 255"]) + "\n")
        path.chmod(0o755)
        return f"{shlex.quote(str(path))} {{host}} {{command}}"


@contextmanager
def stubs(folder: Path) -> Iterator[Nodes]:
    """Two names for this machine."""
    nodes = (Node(name="one", address="127.0.0.1"), Node(name="two", address="127.0.0.1"))
    yield Nodes(nodes=nodes, folder=folder)


@contextmanager
def namespaces(names: Sequence[Sequence[str]] = ((), ())) -> Iterator[Nodes]:
    """Two namespaces; ``names`` are further host names of each, resolved on both."""
    with two_hosts("1gbit") as pair, tempfile.TemporaryDirectory() as folder:
        spaces = [host.partition("=")[::2] for host in pair.hosts.split(",")]
        known = [(address, " ".join([space, *more])) for (space, address), more in zip(spaces, names, strict=True)]
        text = "".join(f"{address} {words}\n" for address, words in [("127.0.0.1", "localhost"), *known])
        nodes = []
        try:
            for (space, address), more in zip(spaces, names, strict=True):
                (NETNS / space).mkdir(parents=True)
                (NETNS / space / "hosts").write_text(text)
                named = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', (*more, space)[0])
                nodes.append(Node(name=space, address=address, enter=("ip", "netns", "exec", space, *named)))
            yield Nodes(nodes=(nodes[0], nodes[1]), folder=Path(folder))
        finally:
            for space, _ in spaces:
                shutil.rmtree(NETNS / space, ignore_errors=True)


def missing() -> str:
    """The reason why this machine has no namespaces; empty if it has."""
    return "" if available() and shutil.which("unshare") else "namespaces with links need root and iproute2"


def run_in_parallel(commands: Sequence[Sequence[str]], environment: Mapping[str, str], folder: Path) -> list[str]:
    """Runs commands in parallel; returns their outputs.

    Raises:
        AssertionError: a command failed; with the outputs of all.
    """
    running = [
        subprocess.Popen(
            words, env={**os.environ, **environment}, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )
        for words in commands
    ]  # fmt: skip
    try:
        outputs = [process.communicate()[0] for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    codes = [process.returncode for process in running]
    assert codes == [0] * len(codes), f"{codes}\n" + "\n----\n".join(outputs)
    return outputs
