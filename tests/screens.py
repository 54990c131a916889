"""The screens of browsers, as a program sees them that would look at one."""

import shutil
import socket
import struct

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
