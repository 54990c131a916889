"""A child's ports that only its parent reaches, though they are on loopback.

Some programs listen there and believe whatever connects, such as a page that a browser of this machine shows.
Their parent borrows their listening sockets and has the kernel drop what does not come from one address of
127.0.0.0/8. A page cannot choose the address that it connects from: to 127.0.0.1 that is 127.0.0.1.

A kernel may allow that to root only. A parent that has given up root then lends the socket to a helper that
has not, which attaches the filter.
"""

import ctypes
import errno
import os
import socket
import stat
import struct
import sys
from collections.abc import Iterator, Set
from contextlib import ExitStack, suppress
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

HELPER_TIMEOUT = 2.0
_LONGEST_MESSAGE = 64
_DONE = b"1"

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def admit_only(
    source: str, *, pid: int, helper: socket.socket | None = None, friend: int | None = None
) -> bool:
    """Has every TCP port on which the child listens take connections from this IPv4 address only; whether
    there is such a port. Blocks for a few milliseconds.

    What is connected already is hung up on, unless it comes from there or from the process `friend`:
    something may have waited for the port to open.

    Raises OSError where the machine forbids it: a container's seccomp profile or Yama may.
    """
    ports = set()
    for each in _tcp_sockets(pid):
        with each:
            if not each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                continue
            try:
                _filter(each, source)
            except PermissionError:
                if helper is None:
                    raise
                _have_filtered(each, source, helper)
            ports.add(each.getsockname()[1])
    if ports:
        _hang_up(pid, ports, source, friend)
    return bool(ports)


def _hang_up(pid: int, ports: Set[int], source: str, friend: int | None) -> None:
    """Ends what strangers have connected to these ports of the child."""
    friends = set()
    for each in _tcp_sockets(friend) if friend is not None else ():
        with each:
            friends.add(each.getsockname()[:2])
    for each in _tcp_sockets(pid):
        # What is not connected has no peer.
        with each, suppress(OSError):
            peer = each.getpeername()[:2]
            if each.getsockname()[1] in ports and peer[0] != source and peer not in friends:
                each.shutdown(socket.SHUT_RDWR)


def _have_filtered(borrowed: socket.socket, source: str, helper: socket.socket) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            lent = [borrowed.fileno(), theirs.fileno()]
            socket.send_fds(helper, [source.encode()], lent, socket.MSG_DONTWAIT)
        ours.settimeout(HELPER_TIMEOUT)
        if ours.recv(1) != _DONE:
            raise PermissionError(errno.EPERM, "not even the helper may filter the port")


def help_filter(helper: socket.socket) -> None:
    """Does what one message asks for; `helper` is the other end of the socket that `admit_only` has."""
    message, descriptors, _, _ = socket.recv_fds(helper, _LONGEST_MESSAGE, 2)
    # Closed at the end, whatever they are: that is an answer, too.
    with suppress(OSError, ValueError), ExitStack() as stack:
        for each in descriptors:
            stack.callback(os.close, each)
        listening, answer = (socket.socket(fileno=each) for each in descriptors)
        stack.callback(answer.detach)
        stack.callback(listening.detach)
        _filter(listening, message.decode())
        answer.send(_DONE, socket.MSG_DONTWAIT)


def _tcp_sockets(pid: int) -> Iterator[socket.socket]:
    pidfd = os.pidfd_open(pid)
    try:
        for each in Path(f"/proc/{pid}/fd").iterdir():
            try:
                # What it is /proc does not tell a node: it goes by the effective group, there the herd's.
                borrowed = _borrow(pidfd, int(each.name))
            except OSError as error:
                # The child may close what it needs no more just now.
                if error.errno != errno.EBADF:
                    raise
                continue
            if not stat.S_ISSOCK(os.fstat(borrowed).st_mode):
                os.close(borrowed)
                continue
            found = socket.socket(fileno=borrowed)
            if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
                yield found
            else:
                found.close()
    finally:
        os.close(pidfd)


def can_filter() -> bool:
    """Whether this user may have `admit_only` for a child. Only trying tells."""
    reader, writer = os.pipe()
    with socket.create_server(("127.0.0.1", 0)) as shared:
        pid = os.fork()
        if pid == 0:
            # Nothing but system calls: another thread of the parent's may have held any lock.
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
        pidfd = os.pidfd_open(pid)
        try:
            with socket.socket(fileno=_borrow(pidfd, shared.fileno())) as borrowed:
                _filter(borrowed, "127.0.0.1")
        except OSError:
            return False
        finally:
            for number in (pidfd, reader, writer):
                os.close(number)
            os.waitpid(pid, 0)
    return True


def _borrow(pidfd: int, number: int) -> int:
    """The child's own descriptor, under another number here."""
    if _libc is None:
        raise OSError("sockets of other processes can be had on Linux only")
    borrowed = int(_libc.syscall(_PIDFD_GETFD, pidfd, number, 0))
    if borrowed < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return borrowed


def _filter(borrowed: socket.socket, source: str) -> None:
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
