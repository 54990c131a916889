"""The tie between a process and the herd that started it: a socket that both ends hold open.

The child says on it that it is ready, and later that it leaves; the child's end reads end-of-file the moment
the parent is gone, however it went, and the child then leaves. Descendants of the child inherit their end of
it and watch it too, so nothing outlives the herd, while a crash in between ends no other process.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress

VARIABLE = "REMUDA_LIFELINE"
_READY = b"ready\n"
_LEAVING = b"leave\n"
_LENGTH = len(_READY)


class Lifeline:
    """The child's end."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def from_environ(cls) -> "Lifeline | None":
        """The lifeline of this process; None without a parent, as under systemd or in a container."""
        text = os.environ.get(VARIABLE)
        return cls(int(text)) if text else None

    def say_ready(self) -> None:
        """Tells the parent that this process does its work now."""
        os.write(self.descriptor, _READY)

    def say_leaving(self) -> None:
        """Tells the parent, if it is still there, that this process takes no more work and will end."""
        with suppress(OSError):
            os.write(self.descriptor, _LEAVING)

    def watch(self, on_cut: Callable[[], None]) -> None:
        """Calls back once when the parent is gone."""
        loop = asyncio.get_running_loop()

        def cut() -> None:
            # The parent never sends anything: readable means end-of-file.
            loop.remove_reader(self.descriptor)
            on_cut()

        loop.add_reader(self.descriptor, cut)


class Tether:
    """The parent's end."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)

    @property
    def environ(self) -> dict[str, str]:
        return {VARIABLE: str(self._theirs.fileno())}

    @property
    def descriptor(self) -> int:
        """What the child must inherit."""
        return self._theirs.fileno()

    def handed_over(self) -> None:
        """Closes our copy of the child's end: from now on end-of-file means that the child is gone."""
        self._theirs.close()

    async def wait_ready(self) -> bool:
        """Whether the child said that it is ready; False when it ended before."""
        return await self._hear() == _READY

    async def wait_leaving(self) -> bool:
        """Whether the child, which was ready, said that it leaves; False when it ended before."""
        return await self._hear() == _LEAVING

    async def _hear(self) -> bytes:
        return await asyncio.get_running_loop().sock_recv(self._ours, _LENGTH)

    def is_held(self) -> bool:
        """Whether a process holds the other end. The child may have ended and its descendants hold it."""
        try:
            return self._ours.recv(_LENGTH) != b""
        except BlockingIOError:
            return True

    def close(self) -> None:
        """Lets go of a tether whose other end is closed."""
        self._ours.close()

    async def release(self) -> None:
        """Lets go, so that all processes that hold the other end leave; waits until the last one has."""
        self._theirs.close()
        self._ours.shutdown(socket.SHUT_WR)
        while await asyncio.get_running_loop().sock_recv(self._ours, 1024):
            pass
        self._ours.close()
