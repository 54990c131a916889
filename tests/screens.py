"""The screens of browsers, as a program sees them that would look at one."""

import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from processes import family, listeners_of, name_of

needs_xvfb = pytest.mark.skipif(shutil.which("Xvfb") is None, reason="no Xvfb here: run make setup")

TIMEOUT = 30.0
_PROTOCOL = b"MIT-MAGIC-COOKIE-1"


def cookie_in(authority: bytes) -> bytes:
    """The cookie in such a file: the last of its fields."""
    return authority[-16:]


def lets_in(place: tuple[str, int], cookie: bytes = b"") -> bool:
    """Whether the X server there takes a client that shows this cookie, or none."""
    name = _PROTOCOL if cookie else b""
    # Of the X protocol, version 11: little end first, and each field filled up to a multiple of four.
    hello = struct.pack("<BxHHHHxx", ord("l"), 11, 0, len(name), len(cookie))
    with socket.create_connection(place, TIMEOUT) as connection:
        connection.sendall(hello + name + b"\0" * (-len(name) % 4) + cookie)
        return connection.recv(1) == b"\1"


def screens_below(process: psutil.Process) -> list[psutil.Process]:
    """The screens of what runs below this process."""
    return [each for each in family(process) if name_of(each) == "Xvfb"]


def place_of(screen: psutil.Process) -> tuple[str, int]:
    """Where it listens: at one address."""
    (listener,) = listeners_of(screen)
    return listener.laddr.ip, listener.laddr.port


@contextmanager
def desktop() -> Iterator[str]:
    """A display like that of a desktop: every local user may draw on it, by a Unix socket."""
    command = ["Xvfb", "-displayfd", "1", "-nolisten", "tcp", "-screen", "0", "1280x1024x24"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        try:
            yield f":{server.stdout.readline().strip()}"
        finally:
            # Not killed: only so it removes its socket.
            server.terminate()
