"""Free ports for servers of tests."""

import random
import socket
from contextlib import suppress


def free_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """Free ports below the kernel's ephemeral range, so that no other process gets them meanwhile."""
    found: set[int] = set()
    chance = random.SystemRandom()  # two test runs must not draw the same ports
    while len(found) < count:
        with socket.socket() as one, suppress(OSError):
            one.bind((address, chance.randrange(16000, 32000)))
            found.add(one.getsockname()[1])
    return list(found)
