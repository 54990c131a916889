"""How a process has ended that is not our child, and when it was started."""

import asyncio
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from remuda.base.processes import exit_status, running_since, until_readable

REMEMBERS = tuple(int(part) for part in platform.release().split(".")[:2]) >= (6, 15)
ENDS = [("", 0), ("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL)]
# It starts a child, says its pid, and buries it when it is told to.
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
print(child.pid, flush=True)
input()
child.wait()
print("buried", flush=True)
input()
"""


@pytest.fixture
def pidfd_of() -> Iterator[Callable[[int], int]]:
    """Opens processes, and closes them in the end."""
    with ExitStack() as stack:

        def open_process(pid: int) -> int:
            pidfd = os.pidfd_open(pid)
            stack.callback(os.close, pidfd)
            return pidfd

        yield open_process


@contextmanager
def parent_of(code: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process, and the pid of its child, which runs this."""
    command = [sys.executable, "-c", PARENT, code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        yield parent, int(parent.stdout.readline())
        parent.kill()


@pytest.mark.parametrize(("code", "status"), ENDS)
async def test_who_is_not_buried_yet_tells_how_it_ended(
    pidfd_of: Callable[[int], int], code: str, status: int
) -> None:
    with parent_of(code) as (_, pid):
        pidfd = pidfd_of(pid)
        await until_readable(pidfd)

        assert exit_status(pid, pidfd) == status


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_who_has_the_group_of_the_herd_sees_how_its_browser_ended(
    pidfd_of: Callable[[int], int],
) -> None:
    user, herd = 58_998, 58_999
    command = ["sh", "-c", "sh -c 'kill -9 $$' & echo $!; read line"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=user, group=user, extra_groups=[]
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        pidfd = pidfd_of(pid)
        await until_readable(pidfd)

        node = os.fork()
        if node == 0:
            seen: int | None = None
            try:
                os.setgroups([])
                os.setresgid(user, herd, herd)
                os.setresuid(user, user, user)
                seen = exit_status(pid, pidfd)
            finally:
                os._exit(0 if seen == -signal.SIGKILL and os.getegid() == herd else 1)

        _, seen_by_node = await asyncio.to_thread(os.waitpid, node, 0)
        assert seen_by_node == 0
        parent.kill()


@pytest.mark.parametrize(("code", "status"), ENDS)
async def test_of_who_is_buried_only_a_new_kernel_knows(
    pidfd_of: Callable[[int], int], code: str, status: int
) -> None:
    with parent_of(code) as (parent, pid):
        pidfd = pidfd_of(pid)
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdin.write("\n")
        parent.stdin.flush()
        assert parent.stdout.readline() == "buried\n"

        assert exit_status(pid, pidfd) == (status if REMEMBERS else None)


def test_a_birth_tells_a_process_from_those_before_and_after_it() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    since = running_since(child.pid)

    assert since is not None
    assert since == running_since(child.pid) != running_since(1)
    child.communicate(b"\n")
    assert running_since(child.pid) is None
