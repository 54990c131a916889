"""Child processes: none outlives the one who started it, and the end of each is noticed."""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
# Loaded before any fork: between fork and exec nothing may import or allocate much.
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_parent(signum: signal.Signals = signal.SIGTERM) -> Callable[[], None]:
    """A `preexec_fn` that has the kernel send the child this signal when its parent dies, even by SIGKILL.

    Start the child from the main thread: Linux counts the death of the thread that forked.
    """
    parent = os.getpid()

    def ask_kernel() -> None:
        if _libc is None:
            return
        _libc.prctl(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0)
        if os.getppid() != parent:  # The parent died before we could ask.
            os.kill(os.getpid(), signal.SIGKILL)

    return ask_kernel


async def until_readable(descriptor: int) -> None:
    """Waits until something can be read there; of a pidfd that is the end of its process."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
