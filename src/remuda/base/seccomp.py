"""What a browser cannot ask of its kernel: a filter of system calls (seccomp), which everything inherits that
the browser starts. The herd's own processes do not have it.

- It connects to no Unix socket: behind those are Redis, D-Bus, Docker and X, which believe whoever connects.
  The filter sees the length of an address, not its family, and lets only those of IP addresses pass. Without
  any socket of that family Chromium does not start, so streams may be made; datagrams need no connection.
- `fsync` and its like do nothing. A browser makes dozens of databases in a fresh profile and waits for the
  disk after each, and the profile is removed with the session.
- io_uring would do what is forbidden here. So would the system calls of other architectures.

Written by hand: it is one system call. The names are those of linux/seccomp.h and linux/filter.h.
"""

import ctypes
import errno
import os
import platform
import socket
import struct
import sys
from functools import cache
from pathlib import Path

from remuda.base.landlock import forbid_new_privileges

_PR_SET_SECCOMP = 22
_MODE_FILTER = 2
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000  # SECCOMP_RET_*; to _ERRNO the number of an error is added.
_IS_DONE = _ERRNO  # No error: the caller believes that it was done.

# Classic BPF: operation, jump if true, jump if false, operand.
_INSTRUCTION = struct.Struct("HBBI")
_LOAD_WORD, _AND, _JUMP_IF_EQUAL, _JUMP_IF_ABOVE, _RETURN = 0x20, 0x54, 0x15, 0x25, 0x06
# Where struct seccomp_data has them.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

_SOCKET_TYPE = 0xF  # SOCK_TYPE_MASK: the rest are flags.
_FAMILIES = (socket.AF_INET, socket.AF_INET6, getattr(socket, "AF_NETLINK", 16))
PASSING_LENGTHS = (16, 28)
"""Of addresses: struct sockaddr_in and struct sockaddr_in6."""

# Of each machine: the number of its architecture, and of the system calls that the filter looks at.
_SYNCS = ("sync", "fsync", "fdatasync", "syncfs", "sync_file_range")
_CALLS = {
    "x86_64": (
        0xC000003E,
        dict(zip(_SYNCS, (162, 74, 75, 306, 277), strict=True))
        | {"socket": 41, "connect": 42, "socketpair": 53, "io_uring_setup": 425},
    ),
    "aarch64": (
        0xC00000B7,
        dict(zip(_SYNCS, (81, 82, 83, 267, 84), strict=True))
        | {"socket": 198, "connect": 203, "socketpair": 199, "io_uring_setup": 425},
    ),
}
_X32 = 0x40000000  # Numbers from here on are those of a third architecture on x86_64.

_Instruction = tuple[int, int, int, int]

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def _load(offset: int) -> _Instruction:
    return (_LOAD_WORD, 0, 0, offset)


def _load_argument(position: int) -> _Instruction:
    # Its lower half, which comes first on both machines. The kernel takes it for an int.
    return _load(_ARGUMENTS + 8 * position)


def _return(verdict: int) -> _Instruction:
    return (_RETURN, 0, 0, verdict)


def _if_equal(value: int, *then: _Instruction) -> list[_Instruction]:
    """These instructions are left out unless the loaded word has this value."""
    return [(_JUMP_IF_EQUAL, 0, len(then), value), *then]


_FORBIDDEN = _return(_ERRNO | errno.EACCES)
_UNKNOWN = _return(_ERRNO | errno.ENOSYS)


def _program(*, allows_unix_sockets: bool) -> list[_Instruction]:
    architecture, calls = _CALLS[platform.machine()]
    program = [
        _load(_ARCHITECTURE),
        (_JUMP_IF_EQUAL, 1, 0, architecture),
        _UNKNOWN,
        _load(_NUMBER),
        (_JUMP_IF_ABOVE, 0, 1, _X32 - 1),
        _UNKNOWN,
    ]
    for name in _SYNCS:
        program += _if_equal(calls[name], _return(_IS_DONE))
    program += _if_equal(calls["io_uring_setup"], _UNKNOWN)
    if not allows_unix_sockets:
        program += _if_equal(
            calls["connect"],
            _load_argument(2),
            *(each for length in PASSING_LENGTHS for each in _if_equal(length, _return(_ALLOW))),
            _FORBIDDEN,
        )
        kind = (_load_argument(1), (_AND, 0, 0, _SOCKET_TYPE))
        streams_only = (*kind, *_if_equal(socket.SOCK_STREAM, _return(_ALLOW)), _FORBIDDEN)
        program += _if_equal(
            calls["socket"],
            _load_argument(0),
            *(each for family in _FAMILIES for each in _if_equal(family, _return(_ALLOW))),
            *_if_equal(socket.AF_UNIX, *streams_only),
            _return(_ERRNO | errno.EAFNOSUPPORT),
        )
        program += _if_equal(
            calls["socketpair"],
            *kind,
            *_if_equal(socket.SOCK_DGRAM, _FORBIDDEN),
            _return(_ALLOW),
        )
    return [*program, _return(_ALLOW)]


class CallFilter:
    """A filter, made before any fork: between fork and exec only one system call is left to do."""

    def __init__(self, *, allows_unix_sockets: bool = False) -> None:
        program = _program(allows_unix_sockets=allows_unix_sockets)
        self._buffer = ctypes.create_string_buffer(b"".join(_INSTRUCTION.pack(*each) for each in program))
        # struct sock_fprog: the number of instructions, and where they are.
        self._described = struct.pack("HP", len(program), ctypes.addressof(self._buffer))

    def filter_us(self) -> None:
        """Puts the filter on this process, which must not be able to gain rights, for good."""
        if _libc is None or _libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, self._described, 0, 0) != 0:
            os._exit(126)  # What is to be filtered does not run otherwise.


@cache
def can_filter_calls() -> bool:
    """Whether this kernel takes such a filter. Only trying tells: a container may forbid it."""
    if _libc is None or platform.machine() not in _CALLS:
        return False
    call_filter = CallFilter()
    pid = os.fork()
    if pid == 0:
        # Nothing but system calls: another thread of the parent's may have held any lock.
        forbid_new_privileges()
        call_filter.filter_us()
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def is_kept_from_browsers(path: Path | str) -> bool:
    """Whether the filter tells the address of a Unix socket with this path from an IP address."""
    # Behind the two bytes of its family; some programs count the zero byte at the end, some do not.
    length = 2 + len(os.fsencode(path))
    return not {length, length + 1}.intersection(PASSING_LENGTHS)
