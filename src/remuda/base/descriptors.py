"""How many files and connections this process may have open, and what it means to run out of them.

The kernel gives the lowest number that is free. So the number of a new descriptor is the count of those that
are in use, and looking at it costs nothing.
"""

import errno
import os
import resource

from remuda.base.errors import Overloaded

MOST = 1 << 20
"""Enough for any process of a herd. Some container engines allow a billion."""
_LACKS = {
    errno.EMFILE: "this process has too many files and connections open",
    errno.ENFILE: "this machine has too many files and connections open",
    errno.ENOBUFS: "this machine has no memory left for connections",
    errno.ENOMEM: "this machine has no memory left",
    errno.EADDRNOTAVAIL: "this machine has no free port for another connection",
}
_given = resource.getrlimit(resource.RLIMIT_NOFILE)


def raise_limit() -> None:
    """Raises the soft limit of this process to the hard one."""
    hard = MOST if _given[1] == resource.RLIM_INFINITY else min(_given[1], MOST)
    if _given[0] != resource.RLIM_INFINITY and _given[0] < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, _given[1]))


def restore_limit(pid: int) -> None:
    """Gives a child the limit that this process was started with.

    Programs that use select(2), or close every number up to the limit, suffer from a high one. Those that
    need more, such as Chromium and Node.js, raise it themselves.
    """
    resource.prlimit(pid, resource.RLIMIT_NOFILE, _given)


def limit() -> int:
    """How many descriptors this process may have."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST if soft == resource.RLIM_INFINITY else min(soft, MOST)


def in_use() -> int:
    """How many descriptors this process has, at least; the limit when there is none left."""
    try:
        descriptor = os.dup(0)
    except OSError as error:
        return limit() if error.errno in _LACKS else 0
    os.close(descriptor)
    return descriptor


def own_lack(error: OSError) -> Overloaded | None:
    """The error for what failed here for want of descriptors, ports or memory; None if it failed elsewhere.

    Such a failure says nothing of the other side, which must not be given up for it.
    """
    lack = _LACKS.get(error.errno or 0)
    return None if lack is None else Overloaded(f"No connection can be opened: {lack}.")
