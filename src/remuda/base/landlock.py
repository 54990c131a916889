"""Landlock, a sandbox of the kernel's that needs no rights: a process gives up all access to files but what
it lists, for itself and for everything that it starts, and can never get it back.

Written by hand: the three system calls have no wrapper in libc. The names are those of linux/landlock.h.
"""

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE = 1 << 13, 1 << 14
# Everything of the first version: reading, writing, and making and removing entries of every kind.
_ABI_1 = (1 << 13) - 1
_READ = _READ_FILE | _READ_DIR
_SCOPE_ABSTRACT_UNIX_SOCKET, _SCOPE_SIGNAL = 1 << 0, 1 << 1
# What a rule about a file, not a directory, may speak of.
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@cache
def landlock_version() -> int:
    """The version of Landlock that this kernel offers; 0 where there is none."""
    if _libc is None:
        return 0
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION)))


def forbid_new_privileges() -> None:
    """Keeps this process, and everything that it starts, from gaining rights by a set-user-id program."""
    if _libc is not None:
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


class Fence:
    """What a process and its children may read, run and write: everything below the listed paths. What they
    may run they may read.

    It is built by the parent. The child, between fork and exec, only makes two system calls.
    """

    def __init__(
        self,
        *,
        reading: Iterable[Path],
        running: Iterable[Path],
        writing: Iterable[Path],
        allows_unix_sockets: bool = False,
    ) -> None:
        self._version = landlock_version()
        self._ruleset = -1
        if self._version == 0 or _libc is None:
            return
        handled = _ABI_1 | (_REFER if self._version >= 2 else 0) | (_TRUNCATE if self._version >= 3 else 0)
        # From version 6 on: nothing inside can send a signal to what is outside, such as its own node, or
        # connect to an abstract socket there.
        scoped = 0
        if self._version >= 6:
            scoped = _SCOPE_SIGNAL | (0 if allows_unix_sockets else _SCOPE_ABSTRACT_UNIX_SOCKET)
        attributes = struct.pack("=QQQ", handled, 0, scoped)
        size = len(attributes) if self._version >= 6 else 16 if self._version >= 4 else 8
        self._ruleset = _checked(_libc.syscall(_CREATE_RULESET, attributes, size, 0))
        os.set_inheritable(self._ruleset, False)
        write = handled & ~_EXECUTE
        for paths, access in ((reading, _READ), (running, _READ | _EXECUTE), (writing, write)):
            for path in paths:
                self._allow(path, access & handled)

    def _allow(self, path: Path, access: int) -> None:
        assert _libc is not None
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:  # Not there, or out of reach for this user anyway.
            return
        try:
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                access &= _OF_FILES
            rule = struct.pack("=Qi", access, descriptor)
            _checked(_libc.syscall(_ADD_RULE, self._ruleset, _RULE_PATH_BENEATH, rule, 0))
        finally:
            os.close(descriptor)

    def enclose_us(self) -> None:
        """Confines this process, for good."""
        forbid_new_privileges()
        if self._ruleset >= 0 and _libc is not None and _libc.syscall(_RESTRICT_SELF, self._ruleset, 0) != 0:
            os._exit(126)  # What is to be confined does not run otherwise.

    def __del__(self) -> None:
        # A process that it encloses stays enclosed.
        if self._ruleset >= 0:
            os.close(self._ruleset)


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"Landlock: {os.strerror(code)}")
    return result
