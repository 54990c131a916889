"""Files that are thrown away need not reach the disk: `fsync` and its like do nothing for a browser.

A browser makes dozens of databases in a fresh profile and waits for the disk after each, and the profile is
removed with the session. So the kernel is told to answer these calls with success without doing them, by a
filter of system calls (seccomp) that everything inherits which the browser starts. The herd's own processes
do not have the filter: what they write is to stay.

Written by hand: it is one system call. The names are those of linux/seccomp.h.
"""

import ctypes
import os
import platform
import struct
import sys
from pathlib import Path

_PR_SET_SECCOMP = 22
_MODE_FILTER = 2
_ALLOW, _ANSWER_ZERO = 0x7FFF0000, 0x00050000  # SECCOMP_RET_ALLOW, and SECCOMP_RET_ERRNO without an error

# Classic BPF: operation, jump if true, jump if false, operand.
_INSTRUCTION = struct.Struct("HBBI")
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _ARCHITECTURE = 0, 4  # Where struct seccomp_data has them.

PASSING_LENGTHS = frozenset({16, 28})
"""Of addresses: struct sockaddr_in and struct sockaddr_in6."""

# Of each machine: the number of its architecture, and the numbers of sync, fsync, fdatasync, syncfs and
# sync_file_range.
_CALLS = {
    "x86_64": (0xC000003E, (162, 74, 75, 306, 277)),
    "aarch64": (0xC00000B7, (81, 82, 83, 267, 84)),
}

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _program() -> bytes:
    """The filter; empty where the numbers of the system calls are not known."""
    architecture, calls = _CALLS.get(platform.machine(), (0, ()))
    if not calls:
        return b""
    tests = [
        _INSTRUCTION.pack(_JUMP_IF_EQUAL, left, 0, call)
        for left, call in zip(range(len(calls), 0, -1), calls, strict=True)
    ]
    return b"".join(
        (
            _INSTRUCTION.pack(_LOAD_WORD, 0, 0, _ARCHITECTURE),
            # The same number is another call in a program for another architecture.
            _INSTRUCTION.pack(_JUMP_IF_EQUAL, 1, 0, architecture),
            _INSTRUCTION.pack(_RETURN, 0, 0, _ALLOW),
            _INSTRUCTION.pack(_LOAD_WORD, 0, 0, _NUMBER),
            *tests,
            _INSTRUCTION.pack(_RETURN, 0, 0, _ALLOW),
            _INSTRUCTION.pack(_RETURN, 0, 0, _ANSWER_ZERO),
        )
    )


# Made before any fork: between fork and exec only one system call is left to do.
_buffer = ctypes.create_string_buffer(_program())
# struct sock_fprog: the number of instructions, and where they are. The buffer ends with a zero byte.
_described = struct.pack("HP", (len(_buffer) - 1) // _INSTRUCTION.size, ctypes.addressof(_buffer))


def skip_syncs() -> None:
    """Has this process, and everything that it starts, never wait for the disk.

    Where the kernel refuses, nothing changes. It does for a process that may still gain rights by a
    set-user-id program.
    """
    if _libc is not None and len(_buffer) > 1:
        _libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, _described, 0, 0)


def is_kept_from_browsers(path: Path | str) -> bool:
    """Whether the filter tells the address of a Unix socket with this path from an IP address."""
    # Behind the two bytes of its family; some programs count the zero byte at the end, some do not.
    length = 2 + len(os.fsencode(path))
    return PASSING_LENGTHS.isdisjoint({length, length + 1})
