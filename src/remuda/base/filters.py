"""A child's ports that only its parent reaches, though they are on loopback.

Some programs listen there and believe whatever connects, such as a page that a browser of this machine shows.
Their parent borrows their listening sockets and has the kernel drop every packet whose time to live is below
255, the most that there is (IP_MINTTL, as RFC 5082 guards routers). The parent sends with 255. A browser
sends with the machine's default, 64: no page, no add-on and none of its options chooses another.

Not a packet filter that looks for an address of the parent's: some kernels let only root attach one.
"""

import asyncio
import ctypes
import errno
import os
import socket
import stat
import sys
from collections.abc import Iterator, Set
from contextlib import ExitStack, suppress
from pathlib import Path

from remuda.base.processes import children_of

# Numbers of Linux, for which the standard library has no name.
_PIDFD_GETFD = 438
_IP_MINTTL = 21
_IPV6_MINHOPCOUNT = 73

_MOST_HOPS = 255
_DEFAULT_HOPS = Path("/proc/sys/net/ipv4/ip_default_ttl")

_End = tuple[str, int]

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def close_to_others(pid: int, *, friend: int | None = None, awaits_friend: bool = False) -> bool:
    """Has every TCP port on which the child listens take connections of `connect_to_child` only; whether
    there is such a port. Blocks for a few milliseconds.

    What is connected already is hung up on, unless it is a socket of the process `friend`: something may have
    waited for the port to open. With `awaits_friend` nothing is done before that has connected.

    Raises OSError where the machine forbids it: a container's seccomp profile or Yama may.
    """
    friends = set() if friend is None else _ends_of(friend)
    with ExitStack() as stack:
        sockets = [stack.enter_context(each) for each in _tcp_sockets(pid)]
        if awaits_friend and not any(_peer_of(each) in friends for each in sockets):
            return False
        listening = [each for each in sockets if each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)]
        still_open = [each for each in listening if not _is_closed(each)]
        for each in still_open:
            _close(each)
        ports = {each.getsockname()[1] for each in still_open}
    if ports:
        _hang_up(pid, ports, friends)
    return bool(listening)


def close_browser_to_others(pid: int, *, friend: int, awaits_friend: bool = False) -> bool:
    """The same for a browser, or for what it has started first, if it is a script around a program."""
    browser: int | None = pid
    while browser is not None:
        if close_to_others(browser, friend=friend, awaits_friend=awaits_friend):
            return True
        browser = next(iter(children_of(browser)), None)
    return False


async def connect_to_child(host: str, port: int) -> socket.socket:
    """A connection to a port that is closed to others. Those of drivers and browsers are on IPv4."""
    connection = socket.socket()
    try:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, _MOST_HOPS)
        await asyncio.get_running_loop().sock_connect(connection, (host, port))
    except BaseException:
        connection.close()
        raise
    return connection


def can_close() -> bool:
    """Whether this user may have `close_to_others` for a child. Only trying tells."""
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
                _close(borrowed)
        except OSError:
            return False
        finally:
            for number in (pidfd, reader, writer):
                os.close(number)
            os.waitpid(pid, 0)
    return True


def _is_closed(borrowed: socket.socket) -> bool:
    return borrowed.getsockopt(socket.IPPROTO_IP, _IP_MINTTL) == _MOST_HOPS


def _close(borrowed: socket.socket) -> None:
    with suppress(FileNotFoundError):
        if int(_DEFAULT_HOPS.read_text()) >= _MOST_HOPS:
            raise OSError(errno.EOPNOTSUPP, f"every packet has the time to live {_MOST_HOPS} here")
    if borrowed.family == socket.AF_INET6:
        borrowed.setsockopt(socket.IPPROTO_IPV6, _IPV6_MINHOPCOUNT, _MOST_HOPS)
    # One of IPv6, too: it may take connections from IPv4.
    borrowed.setsockopt(socket.IPPROTO_IP, _IP_MINTTL, _MOST_HOPS)


def _hang_up(pid: int, ports: Set[int], friends: Set[_End]) -> None:
    """Ends what strangers have connected to these ports of the child."""
    for each in _tcp_sockets(pid):
        with each:
            if (peer := _peer_of(each)) and peer not in friends and each.getsockname()[1] in ports:
                with suppress(OSError):  # It may just have gone.
                    each.shutdown(socket.SHUT_RDWR)


def _ends_of(pid: int) -> set[_End]:
    """Where the connections of a process begin."""
    ends = set()
    for each in _tcp_sockets(pid):
        with each:
            ends.add(each.getsockname()[:2])
    return ends


def _peer_of(connection: socket.socket) -> _End | None:
    try:
        host, port = connection.getpeername()[:2]
    except OSError:  # It is not connected.
        return None
    return host, port


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


def _borrow(pidfd: int, number: int) -> int:
    """The child's own descriptor, under another number here."""
    if _libc is None:
        raise OSError("sockets of other processes can be had on Linux only")
    borrowed = int(_libc.syscall(_PIDFD_GETFD, pidfd, number, 0))
    if borrowed < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return borrowed
