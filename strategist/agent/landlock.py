"""Landlock: the kernel confines a thread, and whatever it starts, to some paths and off the network. Linux 5.13 and newer.

Python's audit hook checks before the kernel opens a file: a link swapped in between passes it, and so do libraries that open files
and connections themselves. Landlock checks when the kernel opens. Constants: linux/landlock.h.
"""

import ctypes
import os
import sys
from collections.abc import Iterable
from contextlib import suppress

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
VERSION, PATH_BENEATH, NO_NEW_PRIVILEGES = 1, 1, 38

READ_FILE, READ_FOLDER, WRITE_FILE, TRUNCATE = 1 << 2, 1 << 3, 1 << 1, 1 << 14
CHANGE_FOLDER = sum(1 << bit for bit in range(4, 14))
"""Rights to create, remove and move entries of folders."""

ALL_RIGHTS = READ_FILE | READ_FOLDER | WRITE_FILE | TRUNCATE | CHANGE_FOLDER
REQUIRED_VERSION = {TRUNCATE: 3, 1 << 13: 2}
"""Rights that the first version of Landlock did not have, with the first version that has them."""

CONNECT = 1 << 0 | 1 << 1
"""Rights to bind and connect TCP, from version 4 on."""


class _Rules(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("descriptor", ctypes.c_int32))


def version() -> int:
    """Version of the kernel's Landlock; 0 without it."""
    if sys.platform != "linux":
        return 0
    return max(_call(CREATE_RULESET, None, 0, VERSION), 0)


def confine(readable: Iterable[str], writable: Iterable[str]) -> bool:
    """Confines the calling thread, and everything that it starts, to these files and folders permanently; False if the kernel
    cannot.

    Executing programs stays allowed; TCP does not, if the kernel supports it. Paths that do not exist are ignored.

    Raises:
        OSError: the kernel supports Landlock but refuses.
    """
    known = version()
    if not known:
        return False
    rights = sum(right for right in _each(ALL_RIGHTS) if REQUIRED_VERSION.get(right, 1) <= known)
    rules = _Rules(files=rights, network=CONNECT if known >= 4 else 0)
    ruleset = _checked(_call(CREATE_RULESET, ctypes.byref(rules), 16 if known >= 4 else 8, 0))
    try:
        for path in readable:
            _allow(ruleset, path, READ_FILE | READ_FOLDER)
        for path in writable:
            _allow(ruleset, path, rights)
        _checked(_libc().prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0))
        _checked(_call(RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)
    return True


def _allow(rules: int, path: str, rights: int) -> None:
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            allowed = rights if os.path.isdir(path) else rights & (READ_FILE | WRITE_FILE | TRUNCATE)
            beneath = _Beneath(allowed=allowed, descriptor=descriptor)
            _checked(_call(ADD_RULE, rules, PATH_BENEATH, ctypes.byref(beneath), 0))
        finally:
            os.close(descriptor)


def _each(rights: int) -> Iterable[int]:
    return (1 << bit for bit in range(64) if rights >> bit & 1)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    return int(_libc().syscall(number, *arguments))


def _checked(answer: int) -> int:
    if answer < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
    return answer
