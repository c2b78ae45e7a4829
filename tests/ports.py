"""Ports for servers that are started in a moment."""

import random
import socket
from contextlib import suppress


def free_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """Below those that the kernel gives to whoever asks for any, so that nobody gets them meanwhile."""
    found: set[int] = set()
    chance = random.SystemRandom()  # two runs of the tests are not to draw the same ones
    while len(found) < count:
        with socket.socket() as one, suppress(OSError):
            one.bind((address, chance.randrange(16000, 32000)))
            found.add(one.getsockname()[1])
    return list(found)
