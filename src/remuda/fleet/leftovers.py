"""Processes and files that a killed holder of a browser, which is a node or a worker, leaves behind.

Everything that a holder starts has the holder's name in its environment. The name tells the holder's pid and
when it was started, so that any process can find out whether the holder is dead. The next holder on this
machine does that before it starts, and the gc does. All but the sweep blocks: call it in a thread.
"""

import asyncio
import os
import re
import tempfile
from collections import Counter
from collections.abc import Container
from pathlib import Path

import psutil

from remuda.base.confinement import remove_directory
from remuda.base.errors import Misconfigured
from remuda.base.ids import new_id
from remuda.base.processes import running_since

MARK = "REMUDA_HOLDER"
# unix(7) limits the path of a socket to 107 bytes, and Chromium ends if /.org.chromium.Chromium.xxxxxx/
# SingletonSocket does not fit behind its directory.
LONGEST_DIRECTORY = 107 - 46
LONGEST_NAME = len("remuda-4194304-01234567-01234567")
"""Of a holder, with the highest pid there is, in the first year after the machine was started."""
TEMPORARY_ADVICE = "set TMPDIR to another path, such as /tmp"
_NAME = re.compile(r"remuda-(\d+)-([0-9a-f]+)-([0-9a-f]{4})[0-9a-f]{4}")


def holder_name() -> str:
    """A name for the holder of a browser that this process is, and for the directory of its files."""
    return f"remuda-{os.getpid()}-{running_since(os.getpid())}-{_namespace()}{new_id()[:4]}"


def find_long_path(place: Path, *, name: int = LONGEST_NAME) -> str | None:
    """Why a Chromium of a holder whose name is so long could not have its files below this directory, in
    words; None if it could."""
    longest = LONGEST_DIRECTORY - name - 1
    if len(os.fsencode(place)) <= longest:
        return None
    return f"{place} is longer than {longest} bytes, so that Chromium's sockets do not fit below it"


def find_temporary_fault(*, name: int = LONGEST_NAME) -> str | None:
    """Why browsers of a holder whose name is so long could not have their files in the temporary directory,
    in words; None if they could."""
    named = os.environ.get("TMPDIR")
    # Python would take another one without a word.
    if named and not (Path(named).is_dir() and os.access(named, os.W_OK | os.X_OK)):
        return f"{named} does not exist or cannot be written to"
    return find_long_path(Path(tempfile.gettempdir()), name=name)


def check_temporary_directory(*, name: int = LONGEST_NAME) -> None:
    """Misconfigured if browsers could not have their files in the temporary directory."""
    if (fault := find_temporary_fault(name=name)) is not None:
        raise Misconfigured(f"The temporary directory {fault}: {TEMPORARY_ADVICE}")


def clear_orphans(owners: Container[int]) -> int:
    """Kills the processes and removes the directories of dead holders, if these users own them; how many
    processes. In a directory for all users, every user can make one that looks so."""
    killed = _kill_orphans()
    # Holders that are not root's may not have reached root's own.
    for place in {tempfile.gettempdir(), "/tmp"}:
        for directory in Path(place).glob("remuda-*-*"):
            if _is_orphaned(directory.name):
                remove_directory(directory, owners=owners)
    return killed


async def sweep_orphans(owners: Container[int]) -> Counter[str]:
    """The same as a sweep of the gc's: a machine may never start another holder."""
    return +Counter({"orphans_killed": await asyncio.to_thread(clear_orphans, owners)})


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
    # which was started at another moment only has its pid.
    return running_since(int(match[1])) != match[2]


def _holder_of(process: psutil.Process) -> str:
    """The name of the holder that a process belongs to; empty if it belongs to none."""
    environment = process.environ()
    if any(name.isidentifier() for name in environment):
        return environment.get(MARK, "")
    # Chromium may write its title over its environment, as far as both are in one page of memory: what is
    # read there is nothing, or the rest of the title, which may have a `=` too. Then its command line tells,
    # which names the directory of its files.
    found = _NAME.search(" ".join(process.cmdline()))
    return found[0] if found else ""


def _kill_orphans() -> int:
    killed = []
    for process in psutil.process_iter():
        try:
            if _is_orphaned(_holder_of(process)):
                process.kill()
                killed.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    psutil.wait_procs(killed, timeout=5)
    return len(killed)
