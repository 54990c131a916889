"""Helper processes: they do what must not be done in a process that serves others, such as running a library
on what a stranger has made, and are killed when that takes too long. See `helping.py` for the inside.

A limit that the library itself has to keep is none, nor is a thread: a library in C keeps the interpreter to
itself. So the kernel enforces the limits.
"""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Collection
from contextlib import suppress
from typing import Self

from remuda.base.helping import LENGTH
from remuda.base.processes import die_with_parent, how_ended


class HelperEnded(Exception):
    """The helper has given no answer and is gone; the text says how it ended."""


class Helper:
    """The process. It is asked one thing at a time."""

    def __init__(self, process: asyncio.subprocess.Process, longest: int) -> None:
        self._process = process
        self._longest = longest

    @classmethod
    async def start(cls, module: str, *args: str, longest: int, pass_fds: Collection[int] = ()) -> Self:
        """A process that runs this module. An answer has at most `longest` bytes. OSError if it cannot be
        started."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-X", "utf8", "-m", module, *args),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=pass_fds,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
        return cls(process, longest)

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.returncode is None

    async def ask(self, request: bytes) -> bytes:
        """Its answer. HelperEnded if there is none; the process is gone then, and so it is when this is
        cancelled."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                self._process.stdin.write(LENGTH.pack(len(request)))
                self._process.stdin.write(request)
                await self._process.stdin.drain()
                (length,) = LENGTH.unpack(await self._process.stdout.readexactly(LENGTH.size))
                if length <= self._longest:
                    return await self._process.stdout.readexactly(length)
        except BaseException:
            # Its answer would be taken for that to the next request.
            await self.stop()
            raise
        await self.stop()
        raise HelperEnded(how_ended(self._process.returncode))

    async def stop(self) -> None:
        """Ends the process, whatever it is doing."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
