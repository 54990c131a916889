"""A screen for a browser that cannot do without one."""

import asyncio
import os
import subprocess

from remuda.base.confinement import Confinement
from remuda.base.errors import DriverUnavailable
from remuda.base.processes import until_readable

SCREEN = "1920x1080"
DEPTH = 24
END_GRACE = 2.0


class Display:
    """An X server without a monitor, under a number of its own choice."""

    def __init__(self, process: subprocess.Popen[bytes], name: str, size: str) -> None:
        self._process = process
        self.name = name
        self.size = size

    @classmethod
    async def start(
        cls, environ: dict[str, str], confinement: Confinement, *, size: str = SCREEN, timeout: float
    ) -> "Display":
        """A screen that is ready to be drawn on."""
        reading, writing = os.pipe()
        command = ["Xvfb", "-displayfd", str(writing), "-screen", "0", f"{size}x{DEPTH}", "-nolisten", "tcp"]
        try:
            process = subprocess.Popen(
                command,
                pass_fds=[writing],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environ,
                start_new_session=True,
                # Not inside: it keeps its lock and its socket in /tmp.
                preexec_fn=confinement.beside(),
            )
            os.close(writing)
            async with asyncio.timeout(timeout):
                number = await _read_line(reading)
        except OSError as error:  # A TimeoutError is one.
            raise DriverUnavailable(f"Xvfb does not start: {str(error) or 'no answer'}") from error
        finally:
            os.close(reading)
        if not number:
            raise DriverUnavailable("Xvfb ended at once")
        return cls(process, f":{number}", size)

    def names(self) -> dict[str, str]:
        """What a browser's arguments may say of it."""
        width, height = self.size.split("x")
        return {"name": self.name, "width": width, "height": height}

    def stop(self) -> None:
        """Asks it to leave, because only then it removes its lock and its socket. Blocks."""
        self._process.terminate()
        try:
            self._process.wait(END_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()


async def _read_line(descriptor: int) -> str:
    """What comes up to the end of a line; to the end, because the writer dies if its pipe is closed."""
    text = b""
    while not text.endswith(b"\n"):
        await until_readable(descriptor)
        part = os.read(descriptor, 16)
        if not part:
            return ""
        text += part
    return text.decode().strip()
