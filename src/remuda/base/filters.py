"""A child's ports that only its parent reaches, though they are on loopback.

Some programs listen there and believe whatever connects, such as a page that a browser of this machine shows.
Their parent borrows their listening sockets and has the kernel drop what does not come from one address of
127.0.0.0/8. A page cannot choose the address that it connects from: to 127.0.0.1 that is 127.0.0.1.
"""

import ctypes
import errno
import os
import socket
import struct
import sys
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

# Numbers of Linux, for which the standard library has no name.
_PIDFD_GETFD = 438
_SO_ATTACH_FILTER = 26
_SO_LOCK_FILTER = 44

# Classic BPF: operation, jump if true, jump if false, operand.
_INSTRUCTION = struct.Struct("HBBI")
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_SOURCE = 0xFFF00000 + 12  # SKF_NET_OFF: behind it is the IP header, and at 12 its source address.
_ALL, _NOTHING = 0xFFFFFFFF, 0

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def admit_only(source: str, *, pid: int) -> None:
    """Has every TCP port on which the child listens take connections from this IPv4 address only.

    Raises OSError where the machine forbids it: a container's seccomp profile or Yama may.
    """
    pidfd = os.pidfd_open(pid)
    try:
        found = [_filter(each, source) for each in _sockets(pid, pidfd)]
    finally:
        os.close(pidfd)
    if not any(found):
        raise OSError(errno.ENOTCONN, f"process {pid} listens on no TCP port")


def _sockets(pid: int, pidfd: int) -> Iterator[socket.socket]:
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if str(each.readlink()).startswith("socket:"):
                yield _borrow(pidfd, int(each.name))
        except OSError as error:
            # The child may close what it needs no more just now.
            if error.errno not in (errno.ENOENT, errno.EBADF, errno.ENOTSOCK):
                raise


def can_filter() -> bool:
    """Whether this user may have `admit_only` for a child. Only trying tells."""
    reader, writer = os.pipe()
    with socket.socket() as shared:
        pid = os.fork()
        if pid == 0:
            # Nothing but system calls: another thread of the parent's may have held any lock.
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
        pidfd = os.pidfd_open(pid)
        try:
            _borrow(pidfd, shared.fileno()).close()
        except OSError:
            return False
        finally:
            for number in (pidfd, reader, writer):
                os.close(number)
            os.waitpid(pid, 0)
    return True


def _borrow(pidfd: int, number: int) -> socket.socket:
    """The child's own socket, under another number here."""
    if _libc is None:
        raise OSError("sockets of other processes can be had on Linux only")
    number = _libc.syscall(_PIDFD_GETFD, pidfd, number, 0)
    if number < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return socket.socket(fileno=number)


def _filter(borrowed: socket.socket, source: str) -> bool:
    """Whether it is a listening socket, which is filtered now."""
    with borrowed:
        is_tcp = borrowed.family in (socket.AF_INET, socket.AF_INET6) and borrowed.type == socket.SOCK_STREAM
        if not is_tcp or not borrowed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return False
        drop = _INSTRUCTION.pack(_RETURN, 0, 0, _NOTHING)
        program = drop
        if borrowed.family == socket.AF_INET:
            program = (
                _INSTRUCTION.pack(_LOAD_WORD, 0, 0, _SOURCE)
                + _INSTRUCTION.pack(_JUMP_IF_EQUAL, 0, 1, int(IPv4Address(source)))
                + _INSTRUCTION.pack(_RETURN, 0, 0, _ALL)
                + drop
            )
        buffer = ctypes.create_string_buffer(program, len(program))
        # struct sock_fprog: the number of instructions, and where they are.
        described = struct.pack("HP", len(program) // _INSTRUCTION.size, ctypes.addressof(buffer))
        borrowed.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, described)
        borrowed.setsockopt(socket.SOL_SOCKET, _SO_LOCK_FILTER, 1)
        return True
