"""What outlives the process that held a browser. A killed driver orphans its browser and its files; but
everything that a holder, a node or a worker, starts carries the holder's name in its environment, and the
name tells the holder's process, so anybody can find it and clear it away. All of this blocks: call
it in a thread.
"""

import os
import re
import shutil
import tempfile
from pathlib import Path

import psutil

from remuda.base.ids import new_id

MARK = "REMUDA_HOLDER"
_NAME = re.compile(r"remuda-(\d+)-\w+")


def holder_name() -> str:
    """A name for the holder of a browser that this process is, and for the directory of its files."""
    return f"remuda-{os.getpid()}-{new_id()[:8]}"


def clear_orphans() -> int:
    """Kills the processes and removes the directories of holders that are no more; how many processes."""
    killed = _kill_orphans()
    for directory in Path(tempfile.gettempdir()).glob("remuda-*-*"):
        if _is_orphaned(directory.name):
            shutil.rmtree(directory, ignore_errors=True)
    return killed


def _is_orphaned(name: str) -> bool:
    match = _NAME.fullmatch(name)
    return match is not None and not _is_running(int(match[1]))


def _is_running(pid: int) -> bool:
    try:
        # A holder is dead as soon as it has ended, even if its parent has not buried it yet, or never will.
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


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
