"""What outlives the process that held a browser. A killed driver orphans its browser and its files; but
everything that a holder, a node or a worker, starts carries the holder's name in its environment, and the
name tells the holder's process and when that was born, so anybody can find it and clear it away: the next
holder on this machine before it starts, and the gc. All but the sweep blocks: call it in a thread.
"""

import asyncio
import os
import re
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import psutil

from remuda.base.ids import new_id
from remuda.base.processes import birth_of

MARK = "REMUDA_HOLDER"
_NAME = re.compile(r"remuda-(\d+)-([0-9a-f]+)-([0-9a-f]{4})[0-9a-f]{4}")


def holder_name() -> str:
    """A name for the holder of a browser that this process is, and for the directory of its files."""
    return f"remuda-{os.getpid()}-{birth_of(os.getpid())}-{_namespace()}{new_id()[:4]}"


def clear_orphans() -> int:
    """Kills the processes and removes the directories of holders that are no more; how many processes."""
    killed = _kill_orphans()
    # Holders that are not root's may not have reached root's own.
    for place in {tempfile.gettempdir(), "/tmp"}:
        for directory in Path(place).glob("remuda-*-*"):
            if _is_orphaned(directory.name):
                shutil.rmtree(directory, ignore_errors=True)
    return killed


async def sweep_orphans() -> Counter[str]:
    """The same as a sweep of the gc's: a machine may never start another holder."""
    return +Counter({"orphans_killed": await asyncio.to_thread(clear_orphans)})


def _namespace() -> str:
    """Whose pids ours are: containers may share a directory for temporary files, but not these."""
    try:
        return f"{Path('/proc/self/ns/pid').stat().st_ino % 0x10000:04x}"
    except OSError:  # No Linux, so no namespaces.
        return "0000"


def _is_orphaned(name: str) -> bool:
    match = _NAME.fullmatch(name)
    if match is None or match[3] != _namespace():
        return False
    # A holder is dead as soon as it has ended, even if its parent has not buried it yet, or never will; and
    # who was born at another moment only has its pid.
    return birth_of(int(match[1])) != match[2]


def _kill_orphans() -> int:
    killed = []
    for process in psutil.process_iter():
        try:
            if _is_orphaned(process.environ().get(MARK, "")):
                process.kill()
                killed.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    psutil.wait_procs(killed, timeout=5)
    return len(killed)
