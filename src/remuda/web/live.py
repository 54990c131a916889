"""The overview as it changes, as Server-Sent Events. However many watch, it is read once for all of them,
and not at all when nobody does."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from remuda.base import clock
from remuda.base.errors import Broken, RemudaError, Unavailable
from remuda.base.log import get_logger
from remuda.web.faces import Problem
from remuda.web.overview import Overview, without_time

log = get_logger(__name__)

LOOK_EVERY = 0.3
# A big herd takes long to read: then look less often, and leave the loop to others for nine tenths.
RESTRAINT = 9
BEAT_EVERY = 5.0
MAX_VIEWERS = 1000
# How long a browser waits before it comes back, in milliseconds.
RECONNECT = b"retry: 1000\n\n"


def event(name: str, value: object) -> bytes:
    """A Server-Sent Event."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(value))


class Live:
    """Looks at the herd while somebody watches, and tells them all."""

    def __init__(self, read: Callable[[], Awaitable[Overview]], *, look_every: float = LOOK_EVERY) -> None:
        self._read = read
        self._look_every = look_every
        self._viewers = 0
        self._watched = asyncio.Event()
        self._news = asyncio.Event()
        self._number = 0
        self._message = b""
        self._fingerprint = b""
        self._is_closed = False

    async def run(self) -> None:
        """Looks for ever. Outlives any absence of Redis."""
        while True:
            await self._watched.wait()
            began = clock.monotonic()
            await self._look()
            took = clock.monotonic() - began
            await asyncio.sleep(max(self._look_every, took * RESTRAINT))

    def watch(self) -> AsyncIterator[bytes]:
        """What one viewer is sent; Unavailable when there are too many."""
        if self._viewers >= MAX_VIEWERS:
            raise Unavailable(f"{MAX_VIEWERS} watch already.")
        return self._messages()

    async def _messages(self) -> AsyncIterator[bytes]:
        with self._viewer():
            yield RECONNECT
            seen = -1
            while not self._is_closed:
                # The latest only: who reads slowly misses snapshots, but never lags behind.
                if self._message and seen != self._number:
                    seen = self._number
                    yield self._message
                elif not await self._wait(self._news):
                    # An event and no comment: scripts do not see comments, and have to notice silence.
                    yield event("beat", {"at": clock.rfc3339()})

    @property
    def is_closed(self) -> bool:
        """Whether viewers have been sent away for good."""
        return self._is_closed

    def close(self) -> None:
        """Sends all viewers away: they come back to whoever serves next."""
        self._is_closed = True
        self._ring()

    async def _look(self) -> None:
        try:
            overview = await self._read()
            self._publish(event("overview", overview), msgspec.json.encode(without_time(overview)))
        except RemudaError as error:
            self._tell_problem(error)
        except Exception:  # The page must say so rather than stand still, and the role has other work.
            log.exception("overview not read")
            self._tell_problem(Broken())

    def _tell_problem(self, error: RemudaError) -> None:
        message = event("problem", Problem(error.api_code, error.message))
        self._publish(message, message)

    def _publish(self, message: bytes, fingerprint: bytes) -> None:
        if fingerprint == self._fingerprint or not self._viewers:
            return
        self._message, self._fingerprint = message, fingerprint
        self._number += 1
        self._ring()

    def _ring(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _wait(self, news: asyncio.Event) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(BEAT_EVERY):
                await news.wait()
        return news.is_set()

    @contextmanager
    def _viewer(self) -> Iterator[None]:
        self._viewers += 1
        self._watched.set()
        try:
            yield
        finally:
            self._viewers -= 1
            if not self._viewers:
                self._watched.clear()
                # Whoever comes next must not be shown how it was.
                self._message = self._fingerprint = b""
