"""System calls that the kernel refuses from some moment on (seccomp), like a failed or full disk."""

import ctypes
import errno
import platform
import struct
from dataclasses import dataclass

NUMBERS = {
    "x86_64": {"openat": 257, "pread64": 17, "pwrite64": 18, "fsync": 74, "fdatasync": 75, "connect": 42, "recvfrom": 45},
    "aarch64": {"openat": 56, "pread64": 67, "pwrite64": 68, "fsync": 82, "fdatasync": 83, "connect": 203, "recvfrom": 207},
}

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 22, 38
SECCOMP_MODE_FILTER = 2
SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO = 0x7FFF0000, 0x00050000
LOAD_NUMBER, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """``calls`` by name, and the error number that they return."""

    calls: tuple[str, ...]
    error: int

    def __str__(self) -> str:
        return f"{self.calls[-1]} {errno.errorcode[self.error]}"

    def begin(self) -> None:
        """Refuses the calls in this process until its end (seccomp(2), a classic BPF filter)."""
        numbers = [NUMBERS[platform.machine()][name] for name in self.calls]
        program = [
            struct.pack("HBBI", LOAD_NUMBER, 0, 0, 0),
            *(struct.pack("HBBI", JUMP_IF_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)),
            struct.pack("HBBI", RETURN, 0, 0, SECCOMP_RET_ALLOW),
            struct.pack("HBBI", RETURN, 0, 0, SECCOMP_RET_ERRNO | self.error),
        ]
        code = ctypes.create_string_buffer(b"".join(program))
        filters = _Program(length=len(program), code=ctypes.addressof(code))
        system = ctypes.CDLL(None, use_errno=True)
        for arguments in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(filters), 0, 0)):
            if system.prctl(*arguments) != 0:
                raise OSError(ctypes.get_errno(), "the kernel takes no filter")


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


OF_A_DISK = (
    Refusal(calls=("openat",), error=errno.EMFILE),
    Refusal(calls=("pread64",), error=errno.EIO),
    Refusal(calls=("pwrite64",), error=errno.EIO),
    Refusal(calls=("pwrite64",), error=errno.ENOSPC),
    Refusal(calls=("fsync", "fdatasync"), error=errno.EIO),
)
OF_A_NETWORK = (
    Refusal(calls=("connect",), error=errno.ECONNREFUSED),
    Refusal(calls=("recvfrom",), error=errno.ECONNRESET),
)
