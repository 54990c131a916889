"""Helper processes: they do what must not be done in a process that serves others, such as running a library
on what a stranger has made, and are killed when that takes too long. See `helping.py` for the inside.

A limit that the library itself has to keep is none. A thread does not help either: it cannot be ended, and a
library in C may keep the interpreter to itself. So the kernel enforces the limits.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Collection
from contextlib import suppress
from typing import Self

from remuda.base.helping import LENGTH
from remuda.base.processes import die_with_parent, how_ended

# glibc: what an answer has taken is kept for the next one. To give it back and get it anew took a fifth of
# the time of a page of 200 KB.
_KEEPING_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(32 << 20)}


class HelperEnded(Exception):
    """The helper has given no answer and is gone; the text says how it ended."""


class Helper:
    """The process. It is asked one thing at a time."""

    def __init__(self, process: asyncio.subprocess.Process, longest: int) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._input = process.stdin
        self._output = process.stdout
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
            env={**os.environ, **_KEEPING_MEMORY},
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
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._send(request)
                (length,) = LENGTH.unpack(await self._output.readexactly(LENGTH.size))
                if length <= self._longest:
                    return await self._output.readexactly(length)
        except BaseException:
            # Its answer would be taken for that to the next request.
            await self.stop()
            raise
        await self.stop()
        raise HelperEnded(how_ended(self._process.returncode))

    async def _send(self, request: bytes) -> None:
        if self._input.is_closing():  # uvloop raises a RuntimeError for what is written then.
            raise BrokenPipeError
        self._input.writelines((LENGTH.pack(len(request)), request))
        await self._input.drain()

    async def stop(self) -> None:
        """Ends the process, whatever it is doing."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        self._input.close()
        with suppress(ConnectionError):
            await self._input.wait_closed()
