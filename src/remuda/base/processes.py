"""Child processes: none outlives the one who started it, and the end of each is noticed."""

import asyncio
import ctypes
import fcntl
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# linux/pidfd.h: struct pidfd_info begins with a mask, and ends (version 0) with the exit code.
_PIDFD_INFO = struct.Struct("=Q52xi")
_PIDFD_INFO_EXIT = 1 << 3
_PIDFD_GET_INFO = (3 << 30) | (_PIDFD_INFO.size << 16) | (0xFF << 8) | 11
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


def terminate_after_us(pid: int) -> subprocess.Popen[bytes]:
    """A shell that sends this process one SIGTERM when ours has died, however; kill it when that is moot.

    For processes that a second signal would hurt: `die_with_parent` sends one for each thread of ours.
    """
    return subprocess.Popen(
        ["sh", "-c", 'read -r line; kill -TERM "$0"', str(pid)],
        stdin=subprocess.PIPE,  # Nothing is ever written there: end-of-file is what it waits for.
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def adopt_orphans() -> None:
    """From now on this process becomes the parent of descendants whose own parent dies, instead of init.

    So none of them can escape `kill_descendants`, and none stays a zombie without a real init.
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


def kill_family(child: subprocess.Popen[bytes], *, mark: tuple[str, str], timeout: float) -> bool:
    """Kills a child with everything below it, and waits until it is gone; False if some of it is not. Blocks.

    For a process that has several such children and adopts orphans: the others live on. What has lost its
    parents is known by its session, or by this variable of its environment.
    """
    sessions = {child.pid}
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        family = _family_of(child, sessions, mark)
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        if child.poll() is not None and not family:
            return True
        # Those that have become our own children are ours to reap.
        for each in family:
            if each.pid != child.pid:
                with suppress(ChildProcessError):
                    os.waitpid(each.pid, os.WNOHANG)
        time.sleep(0.001)
    return False


def _family_of(
    child: subprocess.Popen[bytes], sessions: set[int], mark: tuple[str, str]
) -> list[psutil.Process]:
    """The processes of a child's family. Their sessions are added: orphans are known by them."""
    name, value = mark
    family: list[psutil.Process] = []
    for each in psutil.Process().children():
        with suppress(psutil.Error, OSError):
            is_ours = each.pid == child.pid or os.getsid(each.pid) in sessions
            if is_ours or each.environ().get(name) == value:
                family += [each, *each.children(recursive=True)]
    for each in family:
        with suppress(OSError):
            sessions.add(os.getsid(each.pid))
    return family


def reap_orphans(children: Collection[int]) -> None:
    """Reaps what has ended and was adopted. Not these, our own children: others wait for them."""
    for each in psutil.Process().children():
        with suppress(psutil.Error, ChildProcessError):
            if each.pid not in children and each.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(each.pid, os.WNOHANG)


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


def process_name(pid: int) -> str:
    """A name for this process that no other has, on any machine and after any restart; empty where the kernel
    does not tell what it takes."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # Whose pids these are: containers have their own.
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return ""
    return f"{boot}/{namespace}/{pid}/{start_of(pid)}"


def has_died(name: str) -> bool:
    """Whether the process with this name was one of this machine, and has ended."""
    place, _, pid = name.rpartition("/")[0].rpartition("/")
    if not pid.isdecimal():
        return False
    now = process_name(int(pid))
    return now != name and now.startswith(f"{place}/")


def children_of(pid: int) -> list[int]:
    """The processes that the first thread of this one has started, oldest first; none if that is not told."""
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def is_stopped(pid: int) -> bool:
    """Whether the process was stopped by a signal or a debugger, and waits to be told to go on."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.NoSuchProcess:
        return False


async def until_readable(descriptor: int) -> None:
    """Waits until something can be read there; of a pidfd that is the end of its process."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)


def exit_status(pid: int, pidfd: int) -> int | None:
    """How a process has ended that is not our child, as `subprocess` tells it: 0 is well, a negative number
    is a signal. None if that is not known any more."""
    status = _status_of_zombie(pid)
    if status is None:
        status = _status_by_kernel(pidfd)
    return None if status is None else os.waitstatus_to_exitcode(status)


def how_ended(status: int | None) -> str:
    """An exit status, in words that follow the name of the process."""
    if status is None:
        return "has ended"
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:  # A real-time signal has no name.
        return f"was killed by signal {-status}"


def _status_of_zombie(pid: int) -> int | None:
    """Until its parent has waited for it, proc(5) has the status, as the last field."""
    # A reader that may not trace the process is shown 0 there. To be allowed, a node whose effective group is
    # the herd's must use its own group, which is its browser's too.
    if _libc is not None:
        _libc.setfsgid(os.getgid())
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    finally:
        if _libc is not None:
            _libc.setfsgid(os.getegid())
    return int(fields[-1]) if fields[0] == "Z" else None


def _status_by_kernel(pidfd: int) -> int | None:
    """After that, only Linux 6.15 and later remember: ioctl PIDFD_GET_INFO with PIDFD_INFO_EXIT."""
    info = bytearray(_PIDFD_INFO.size)
    _PIDFD_INFO.pack_into(info, 0, _PIDFD_INFO_EXIT, 0)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    mask, status = _PIDFD_INFO.unpack(info)
    return status if mask & _PIDFD_INFO_EXIT else None


def running_since(pid: int) -> str | None:
    """When a running process was started, in a form to compare: its pid may be used again later. None if
    there is no such process, or it is a zombie."""
    if sys.platform != "linux":
        return _running_since_by_clock(pid)
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    # proc(5), fields 3 and 22: the state, and ticks since boot, which setting the clock does not change.
    return None if fields[0] in "ZX" else f"{int(fields[19]):x}"


def _running_since_by_clock(pid: int) -> str | None:
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else f"{int(process.create_time() * 100):x}"
    except psutil.NoSuchProcess:
        return None


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether a child has ended. One that was killed can be waited for only when the last of its
    threads is gone, which may take a busy machine some time."""
    return process.poll() is not None or running_since(process.pid) is None


async def until_exit(process: subprocess.Popen[bytes]) -> int:
    """Waits for the end of a child, however it comes; its exit status."""
    pidfd = os.pidfd_open(process.pid)
    try:
        await until_readable(pidfd)
    finally:
        os.close(pidfd)
    return process.wait()
