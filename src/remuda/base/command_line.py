"""What other processes see of this one's arguments: no password of a URL that stands there.

Every user of a machine may read the arguments of all its processes in `/proc`, and so may a browser: Firefox
shows them to its clients.
"""

import ctypes
import os
import sys
from pathlib import Path

from remuda.base.log import redact


def hide_secrets() -> None:
    """Takes credentials out of the arguments that the kernel shows; `sys.argv` keeps them."""
    if sys.platform != "linux":
        return
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    except OSError:  # No process is seen here.
        return
    # proc(5), fields 48 and 49: where in the memory the arguments begin and end.
    start, end = int(fields[45]), int(fields[46])
    memory = (ctypes.c_char * (end - start)).from_address(start)
    memory.raw = b"\0".join(map(_without_secrets, memory.raw.split(b"\0")))


def _without_secrets(argument: bytes) -> bytes:
    # There is no more room than the argument took.
    return os.fsencode(redact(os.fsdecode(argument)))[: len(argument)].ljust(len(argument))
