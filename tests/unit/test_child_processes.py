"""Children of ours: when one has ended, and who hears of our own end."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import psutil

from remuda.base.processes import has_ended, terminate_after_us
from waiting import eventually

# The first thread ends, and one more goes on: for a moment, every process with threads that is killed is so.
HALF_DEAD = (
    "import ctypes, threading, time\n"
    "threading.Thread(target=time.sleep, args=(600,)).start()\n"
    "ctypes.CDLL(None).pthread_exit(None)\n"
)

# Is watched over by one that dies at once.
BEREFT = (
    "import os, sys\n"
    "from remuda.base.processes import terminate_after_us\n"
    "terminate_after_us(int(sys.argv[1]))\n"
    "os._exit(0)\n"
)


@contextmanager
def child_of(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A child that is killed in the end."""
    with subprocess.Popen(command) as child:
        try:
            yield child
        finally:
            child.kill()


def sleeper() -> AbstractContextManager[subprocess.Popen[bytes]]:
    return child_of("sleep", "600")


async def test_a_child_whose_last_threads_are_still_to_go_has_ended() -> None:
    with child_of(sys.executable, "-c", HALF_DEAD) as child:
        await eventually(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE)

        assert child.poll() is None, "it is not half dead"
        assert has_ended(child)


def test_a_child_that_runs_has_not_ended_and_one_that_was_waited_for_has() -> None:
    with sleeper() as child:
        assert not has_ended(child)
        child.kill()
        child.wait()
        assert has_ended(child)


def test_who_is_to_hear_of_our_end_gets_a_signal_then() -> None:
    with sleeper() as other:
        subprocess.run([sys.executable, "-c", BEREFT, str(other.pid)], check=True)

        assert other.wait(10) == -15


def test_a_watcher_that_is_dismissed_signals_nobody() -> None:
    with sleeper() as other:
        watcher = terminate_after_us(other.pid)
        watcher.kill()
        watcher.communicate()

        assert other.poll() is None
