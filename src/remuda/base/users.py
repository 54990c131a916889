"""Users that have no account: each browser of a herd that root started runs as one that nothing else runs as.

Which numbers are free is the kernel's to say. Each is a lock on a file that ends with its last holder: a
crash gives it back, and the herds of one machine never share one.
"""

import fcntl
import os
import pwd
import signal
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from remuda.base.directories import remove_tree
from remuda.base.errors import Misconfigured
from remuda.base.landlock import forbid_new_privileges

# Two, because a container may be read-only but for one of them.
_LOCKS = (Path("/run/remuda"), Path("/tmp/remuda-users"))
_WORLD_WRITABLE = tuple(map(Path, ("/dev/mqueue", "/dev/shm", "/run/lock", "/tmp", "/var/tmp")))


class BrowserUser:
    """A user that one node or worker has, until its last holder has ended."""

    def __init__(self, uid: int, lock: int) -> None:
        self.uid = uid
        self.lock = lock
        """The descriptor of its lock. What inherits it holds the user too."""

    def release(self) -> None:
        """Gives the number back, as far as this process holds it."""
        os.close(self.lock)


def read_uids(text: str) -> range:
    """The users that `browser_uids` names, such as 58000-58999; Misconfigured when they cannot be used."""
    if not text:
        return range(0)
    first, dash, last = text.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal() and 0 < int(first) < int(last) < 2**31):
        raise Misconfigured(f"browser_uids is {text!r}; it must be a range such as 58000-58999, or empty")
    uids = range(int(first), int(last) + 1)
    for user in pwd.getpwall():
        if user.pw_uid in uids:
            raise Misconfigured(
                f"browser_uids is {text}, but {user.pw_uid} is the user {user.pw_name!r}; choose free numbers"
            )
    return uids


def claim_user(uids: Sequence[int]) -> BrowserUser:
    """A user without a running process, and without a file in the directories that all users may write to.
    Blocks for a few milliseconds; needs root."""
    locks = _locks_directory()
    # The lowest that is free: few numbers are then ever used, and what one leaves is soon cleared away.
    for uid in uids:
        lock = os.open(locks / f"{uid}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        _kill_all_of(uid)
        _remove_files_of(uid)
        return BrowserUser(uid, lock)
    raise Misconfigured(f"All {len(uids)} users of browser_uids are in use; choose a larger range")


def take_identity(uid: int, *, group: int | None = None) -> None:
    """Makes this process, which is root's, one of this user, for good. It has no groups but its own, and this
    one until it drops it."""
    forbid_new_privileges()  # First, so that no process of this user can ever gain rights.
    os.setgroups([])
    effective = uid if group is None else group
    os.setresgid(uid, effective, effective)
    os.setresuid(uid, uid, uid)


def _locks_directory() -> Path:
    for directory in _LOCKS:
        with suppress(OSError):
            directory.mkdir(mode=0o700, exist_ok=True)
            status = directory.lstat()
            # In /tmp, another user may have been first.
            if stat.S_ISDIR(status.st_mode) and status.st_uid == 0 and not status.st_mode & 0o022:
                return directory
    raise Misconfigured(f"Browsers' users are kept apart by files in {_LOCKS[0]}, which cannot be written")


def _kill_all_of(uid: int) -> None:
    """Kills every process of this user at once, whatever it does meanwhile: `kill -1` of the kernel's."""
    pid = os.fork()
    if pid == 0:
        try:
            take_identity(uid)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    with suppress(ChildProcessError):  # Where every child is reaped as soon as it ends.
        os.waitpid(pid, 0)


def _remove_files_of(uid: int) -> None:
    for shared in _WORLD_WRITABLE:
        with suppress(OSError), os.scandir(shared) as entries:
            for entry in entries:
                # Another process may remove it at the same time.
                with suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid != uid:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        remove_tree(Path(entry.path), owners=(uid,))
                    else:
                        Path(entry.path).unlink()
