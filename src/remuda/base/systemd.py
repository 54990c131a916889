"""What systemd tells a process and wants to hear from it: its sockets, readiness and the watchdog.

The protocol is a line of text to a datagram socket (sd_notify(3)) and a few variables (sd_listen_fds(3)); a
library would not be shorter.
"""

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import suppress

FIRST_SOCKET = 3
# systemd asks for a sign of life within the time that it allows; half of it leaves room for a busy machine.
WATCHDOG_SHARE = 0.5


def notify(state: str, *, environ: Mapping[str, str] = os.environ) -> None:
    """Tells the service manager, if there is one: READY=1, STOPPING=1, WATCHDOG=1 or STATUS=..."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)


async def keep_watchdog(*, environ: Mapping[str, str] = os.environ) -> None:
    """Gives the service manager the signs of life that it has asked for, as long as the event loop turns."""
    microseconds = environ.get("WATCHDOG_USEC", "")
    if not microseconds.isdecimal() or environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return
    while True:
        notify("WATCHDOG=1", environ=environ)
        await asyncio.sleep(int(microseconds) / 1e6 * WATCHDOG_SHARE)


def inherited_socket(*, environ: Mapping[str, str] = os.environ) -> socket.socket | None:
    """The first socket that the service manager listens on for this process; None if there is none."""
    if environ.get("LISTEN_PID") != str(os.getpid()) or environ.get("LISTEN_FDS", "0") == "0":
        return None
    found = socket.socket(fileno=FIRST_SOCKET)
    found.setblocking(False)
    return found
