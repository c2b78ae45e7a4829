"""Two hosts on this machine: network namespaces with one slow link between them. Needs root and iproute2."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

SHELL = "ip netns exec {host} sh -c {command}"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Names and addresses of both hosts, as ``--hosts`` expects."""

    hosts: str


def available() -> bool:
    """Whether this machine permits network namespaces."""
    if os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("tc")):
        return False
    name = f"try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode == 0
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return made


@contextmanager
def two_hosts(rate: str) -> Iterator[Pair]:
    """Two hosts whose link has bandwidth ``rate`` (in the notation of ``tc``) in each direction."""
    names = [f"s{os.getpid()}h{number}" for number in (1, 2)]
    links = [f"s{os.getpid() % 10**6}v{number}" for number in (1, 2)]
    try:
        for name in names:
            _do("ip", "netns", "add", name)
        _do("ip", "link", "add", links[0], "netns", names[0], "type", "veth", "peer", "name", links[1], "netns", names[1])
        for number, (name, link) in enumerate(zip(names, links, strict=True), 1):
            _do("ip", "-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", link)
            _do("ip", "-n", name, "link", "set", "lo", "up")
            _do("ip", "-n", name, "link", "set", link, "up")
            _do("tc", "-n", name, "qdisc", "add", "dev", link, "root", "tbf", "rate", rate, "burst", "64kb", "latency", "50ms")
        yield Pair(hosts=",".join(f"{name}=10.77.0.{number}" for number, name in enumerate(names, 1)))
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _do(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
