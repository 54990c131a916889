"""A screen for a browser with a window: an X server without a monitor, which lets in who has its cookie.

Browsers cannot connect to Unix sockets, so it listens on loopback. Xvfb by itself would listen on all
addresses of the machine: its socket is made here, and handed over as systemd does it.
"""

import asyncio
import errno
import os
import secrets
import shutil
import socket
import stat
import struct
import subprocess
from pathlib import Path

from remuda.base.config import Config
from remuda.base.confinement import Confinement, home_of, is_display_shared
from remuda.base.errors import DriverUnavailable
from remuda.base.hosts import hidden_loopback
from remuda.base.processes import until_readable

PROGRAM = "Xvfb"
SCREEN = "1920x1080"
DEPTH = 24
FIRST_PORT = 6000
"""Of display 0; each further one has the next."""

# sd_listen_fds(3): the socket that is handed over has the number 3, and the variables say whom it is for.
_HAND_OVER = 'exec 3<&0 4>&1 </dev/null >/dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec "$@"'


def has_screens(config: Config) -> bool:
    """Whether a browser with a window can have a screen here."""
    return is_display_shared(config) or shutil.which(PROGRAM) is not None


class Display:
    """An X server of one browser's own."""

    def __init__(self, process: subprocess.Popen[bytes], name: str, cookie: Path, size: str) -> None:
        self._process = process
        self.name = name
        self.cookie = cookie
        """The file that whoever draws on it, or looks at it, must be able to read."""
        self.size = size

    @classmethod
    async def start(
        cls,
        directory: Path,
        environ: dict[str, str],
        confinement: Confinement,
        *,
        size: str = SCREEN,
        timeout: float,
    ) -> "Display":
        """A screen that is ready to be drawn on, for the browser with this directory and environment."""
        if shutil.which(PROGRAM) is None:
            raise DriverUnavailable("A screen is needed, but Xvfb is not installed on the browser's machine")
        try:
            cookie = _make_cookie(home_of(directory), confinement)
            with _listen() as listener:
                host, port = listener.getsockname()
                number = port - FIRST_PORT
                command = [
                    # With -displayfd, it keeps no lock in /tmp.
                    *(PROGRAM, f":{number}", "-displayfd", "4", "-auth", str(cookie)),
                    # Else it would start anew, and cut off who comes, whenever its last client leaves.
                    *("-noreset", "-screen", "0", f"{size}x{DEPTH}"),
                    # MIT-SHM is of no use over TCP, but without that extension ffmpeg waits for ever.
                    *("-nolisten", "tcp", "-nolisten", "unix", "-nolisten", "local"),
                ]
                process = subprocess.Popen(
                    ["sh", "-c", _HAND_OVER, "sh", *command],
                    stdin=listener.fileno(),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=environ,
                    start_new_session=True,
                    # Not inside: it has the layout of its keyboard compiled in /tmp.
                    preexec_fn=confinement.beside(),
                )
        except OSError as error:
            raise DriverUnavailable(f"Xvfb does not start: {error}") from error
        display = cls(process, f"{host}:{number}", cookie, size)
        try:
            async with asyncio.timeout(timeout):
                await display._until_ready()
        except BaseException as error:
            display.stop()
            if isinstance(error, TimeoutError):
                raise DriverUnavailable(f"Xvfb does not answer within {timeout:g} s") from error
            raise
        return display

    async def _until_ready(self) -> None:
        """Waits until it has said its number; to the end of the line, because it dies if its pipe is closed
        while it writes."""
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            said = b""
            while not said.endswith(b"\n"):
                await until_readable(pipe.fileno())
                part = os.read(pipe.fileno(), 16)
                if not part:
                    # By one that is built without systemd, the socket is not found.
                    raise DriverUnavailable("Xvfb ended at once; it must be one like Debian's, with systemd")
                said += part

    @property
    def environ(self) -> dict[str, str]:
        """How a program finds it. One that has the browser's HOME finds the cookie without that."""
        return {"DISPLAY": self.name, "XAUTHORITY": str(self.cookie)}

    def names(self) -> dict[str, str]:
        """What a browser's arguments may say of it."""
        width, height = self.size.split("x")
        return {"name": self.name, "width": width, "height": height}

    def stop(self) -> None:
        """Ends it. Blocks."""
        self._process.kill()
        self._process.wait()


def _make_cookie(home: Path, confinement: Confinement) -> Path:
    """The file with the cookie of a browser's screen. The browser must not be able to change it: an X server
    whose file has none lets in every program of the machine."""
    file = home / ".Xauthority"
    # Xau(3): the family of the address, the address, the number of the display, and what to show there. The
    # wild family is for any address: the screen of this browser is the only one that it has a cookie for.
    fields = (b"", b"", b"MIT-MAGIC-COOKIE-1", secrets.token_bytes(16))
    entry = b"\xff\xff" + b"".join(struct.pack(">H", len(field)) + field for field in fields)
    mode = stat.S_IMODE(home.stat().st_mode)
    home.chmod(0o700)
    # Nothing that a client commands has run there yet; nor does this follow a link.
    with file.open("xb") as opened:
        os.fchmod(opened.fileno(), 0o400)
        opened.write(entry)
    confinement.own(file)
    home.chmod(mode)
    return file


def _listen() -> socket.socket:
    """A socket where no web page can guess it, at a port that is a display's."""
    while True:
        try:
            place = (hidden_loopback(), FIRST_PORT + secrets.randbelow(0x10000 - FIRST_PORT))
            return socket.create_server(place)
        except OSError as error:
            # By something that listens on all addresses.
            if error.errno != errno.EADDRINUSE:
                raise
