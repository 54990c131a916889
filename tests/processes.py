"""What tests have started, at whatever remove: found by a mark in its environment, which children inherit.

A look goes through everything that runs on this machine, and a test that waits looks often. So it reads /proc
itself, which takes a fraction of what psutil takes for it.

Any process may end between two looks. So tests ask it with the functions below, which then answer with
nothing, and not with the methods of psutil, which raise.
"""

import os
from contextlib import suppress
from types import ModuleType
from typing import Any

import psutil


def find_processes(variable: str, value: str, *, named: str | None = None) -> list[psutil.Process]:
    """Everything that runs with this in its environment, or whose command line has that name in it."""
    mark = f"{variable}={value}".encode()
    found = []
    for pid in psutil.pids():
        # Empty for a zombie: what has ended does not count, buried or not.
        is_marked = mark in _read(pid, "environ").split(b"\0")
        if is_marked or (named is not None and named.encode() in _read(pid, "cmdline")):
            with suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(pid))
    return found


def _read(pid: int, what: str) -> bytes:
    # Not with a file object, which takes twice as long.
    try:
        file = os.open(f"/proc/{pid}/{what}", os.O_RDONLY)
    except OSError:  # It has ended, or is somebody else's.
        return b""
    content = b""
    try:
        while part := os.read(file, 1 << 16):
            content += part
    except OSError:  # It has ended since.
        return b""
    finally:
        os.close(file)
    return content


def name_of(process: psutil.Process) -> str:
    """Its name; nothing when it has ended."""
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def command_of(process: psutil.Process) -> list[str]:
    """Its command line; nothing when it has ended."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def parent_of(process: psutil.Process) -> int:
    """The pid of its parent; 0 when it has ended."""
    try:
        return process.ppid()
    except psutil.NoSuchProcess:
        return 0


def children_of(process: psutil.Process, *, recursive: bool = False) -> list[psutil.Process]:
    """What it has started and that still runs; nothing when it has ended."""
    try:
        return process.children(recursive=recursive)
    except psutil.NoSuchProcess:
        return []


def listeners_of(process: psutil.Process) -> list[Any]:
    """The TCP sockets at which it listens; none when it has ended or may not be looked at."""
    try:
        sockets = process.net_connections("tcp")
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return []
    return [each for each in sockets if each.status == psutil.CONN_LISTEN]


def kill(process: psutil.Process) -> None:
    """Kills it, unless it has ended."""
    with suppress(psutil.NoSuchProcess):
        process.kill()


def family(process: psutil.Process) -> list[psutil.Process]:
    """The process and everything below it."""
    return [process, *children_of(process, recursive=True)]


def is_alive(process: psutil.Process) -> bool:
    """Whether it runs; one that has ended and is not buried does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def are_gone(processes: list[psutil.Process]) -> bool:
    """Whether none of them runs any more."""
    return not any(is_alive(process) for process in processes)


def helpers(module: ModuleType, *, of: int | None = None) -> list[psutil.Process]:
    """The helper processes of this one, or of another, that run this module."""
    found = []
    for child in psutil.Process(of).children():
        with suppress(psutil.Error):
            if module.__name__ in child.cmdline():
                found.append(child)
    return found
