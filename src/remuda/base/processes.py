"""Child processes: none outlives the one who started it, and the end of each is noticed."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
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


def adopt_orphans() -> None:
    """From now on this process becomes the parent of descendants whose own parent dies, instead of init.

    So none of them can escape `kill_descendants`, and none stays a zombie where there is no real init.
    """
    if _libc is not None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_descendants(timeout: float) -> bool:
    """Kills everything below this process and waits until it is gone; False if some of it is not. Blocks."""
    this = psutil.Process()
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        for descendant in this.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                descendant.kill()
        # Each that is reaped may leave children to us, which are killed in the next round.
        if _reap_all():
            return True
        time.sleep(0.001)
    return False


def _reap_all() -> bool:
    """Reaps every child that has ended; whether there is none left at all."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def start_of(pid: int) -> str | None:
    """When a process started, in the kernel's ticks: with its pid, a name that is given only once. None when
    there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The fields begin behind its name, which stands in brackets and may hold anything, brackets too.
    return stat.rpartition(b")")[2].split()[19].decode()


async def until_readable(descriptor: int) -> None:
    """Waits until something can be read there; of a pidfd that is the end of its process."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)


async def until_exit(process: subprocess.Popen[bytes]) -> int:
    """Waits for the end of a child, however it comes; its exit status."""
    pidfd = os.pidfd_open(process.pid)
    try:
        await until_readable(pidfd)
    finally:
        os.close(pidfd)
    return process.wait()
