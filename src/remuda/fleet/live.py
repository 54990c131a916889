"""Server-Sent Events: views that are sent as they change, and logs that are followed as they grow.

However many clients of an account watch a view, it is read once for all of them, and not at all when there
are none; operators share one view of all accounts.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from remuda.base import clock
from remuda.base.errors import Broken, RemudaError, Unavailable
from remuda.base.log import get_logger
from remuda.keyspace.key import ChannelName
from remuda.store import Store

log = get_logger(__name__)

T = TypeVar("T")

LOOK_EVERY = 0.3
BEAT_EVERY = 5.0
"""Seconds of silence after which a stream says that it is still there."""
MAX_VIEWERS = 1000
MAX_OF_ACCOUNT = MAX_VIEWERS // 4
"""Of each account: one client must not keep the operators and all other accounts from watching."""
# How long a browser waits before it comes back, in milliseconds.
RECONNECT = b"retry: 1000\n\n"
# A big herd takes long to read: then look less often, and leave the loop to others for nine tenths.
RESTRAINT = 9


def event(name: str, value: object) -> bytes:
    """A Server-Sent Event."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(value))


class _Viewers(Counter[str | None]):
    """How many watch, by the account that they are limited to; None for operators."""

    def check(self, limited_to: str | None) -> None:
        """Unavailable if there are too many to take another."""
        if self.total() >= MAX_VIEWERS:
            raise Unavailable(f"{MAX_VIEWERS} clients watch already.")
        if limited_to is not None and self[limited_to] >= MAX_OF_ACCOUNT:
            raise Unavailable(f"{MAX_OF_ACCOUNT} clients of the account {limited_to} watch already.")

    @contextmanager
    def another(self, limited_to: str | None) -> Iterator[None]:
        """Counts one more while it watches."""
        self[limited_to] += 1
        try:
            yield
        finally:
            self[limited_to] -= 1
            if not self[limited_to]:
                del self[limited_to]


class Live(Generic[T]):
    """Reads something while there are viewers, and sends it to all of them when it has changed."""

    def __init__(
        self,
        name: str,
        read: Callable[[], Awaitable[T]],
        without_time: Callable[[T], object],
        *,
        look_every: float = LOOK_EVERY,
    ) -> None:
        self._name = name
        self._read = read
        self._without_time = without_time
        self._look_every = look_every
        self._viewers = 0
        self._watched = asyncio.Event()
        self._news = asyncio.Event()
        self._number = 0
        self._message = b""
        self._fingerprint = b""

    async def run(self) -> None:
        """Looks for ever. Outlives any absence of Redis."""
        while True:
            await self._watched.wait()
            began = clock.monotonic()
            await self._look()
            took = clock.monotonic() - began
            await asyncio.sleep(max(self._look_every, took * RESTRAINT))

    async def watch(self) -> AsyncGenerator[bytes, None]:
        """What one viewer is sent."""
        with self._viewer():
            yield RECONNECT
            seen = -1
            while True:
                # The latest only: a viewer that reads slowly misses snapshots, but never lags behind.
                if self._message and seen != self._number:
                    seen = self._number
                    yield self._message
                    continue
                news = self._news
                with suppress(TimeoutError):
                    async with asyncio.timeout(BEAT_EVERY):
                        await news.wait()
                if not news.is_set():
                    # An event and not a comment: scripts do not see comments, and have to notice silence.
                    yield event("beat", {"at": clock.rfc3339()})

    async def _look(self) -> None:
        try:
            shown = await self._read()
            self._publish(event(self._name, shown), msgspec.json.encode(self._without_time(shown)))
        except RemudaError as error:
            self._tell_problem(error)
        except Exception:  # The page must say so rather than stand still, and the role has other work.
            log.exception("live view not read", view=self._name)
            self._tell_problem(Broken())

    def _tell_problem(self, error: RemudaError) -> None:
        message = event("problem", error.api_face()["error"])
        self._publish(message, message)

    def _publish(self, message: bytes, fingerprint: bytes) -> None:
        if fingerprint == self._fingerprint or not self._viewers:
            return
        self._message, self._fingerprint = message, fingerprint
        self._number += 1
        self._news.set()
        self._news = asyncio.Event()

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
                # The next viewer must not be shown how it was.
                self._message = self._fingerprint = b""


class LiveStreams(Generic[T]):
    """One `Live` for each account that is watched: made for its first viewer, dropped with its last. `read`
    gets the account to which it is limited, or None for operators. What `without_time` returns differs only
    when something has happened."""

    def __init__(
        self,
        name: str,
        read: Callable[[str | None], Awaitable[T]],
        without_time: Callable[[T], object] = lambda shown: shown,
    ) -> None:
        self._name = name
        self._read = read
        self._without_time = without_time
        self._streams: dict[str | None, _Stream] = {}
        self._viewers = _Viewers()

    def watch(self, limited_to: str | None) -> AsyncGenerator[bytes, None]:
        """What one viewer is sent, limited to this account; Unavailable when there are too many."""
        self._viewers.check(limited_to)
        return self._messages(limited_to)

    @property
    def viewers(self) -> int:
        """How many watch, of all accounts."""
        return self._viewers.total()

    async def _messages(self, limited_to: str | None) -> AsyncGenerator[bytes, None]:
        stream = self._streams.get(limited_to)
        if stream is None:
            live = Live(self._name, lambda: self._read(limited_to), self._without_time)
            looking = asyncio.create_task(live.run(), name=f"live {self._name} of {limited_to or 'all'}")
            stream = self._streams[limited_to] = _Stream(live, looking)
        try:
            with self._viewers.another(limited_to):
                async with aclosing(stream.live.watch()) as messages:
                    async for message in messages:
                        yield message
        finally:
            if limited_to not in self._viewers:
                stream.looking.cancel()
                del self._streams[limited_to]


@dataclass
class _Stream:
    live: Live[Any]
    looking: "asyncio.Task[None]"


class LogFollowers:
    """Clients that follow logs."""

    def __init__(self) -> None:
        self._viewers = _Viewers()

    def check(self, limited_to: str | None) -> None:
        """Unavailable if there are too many to take another, limited to this account."""
        self._viewers.check(limited_to)

    async def follow(
        self,
        store: Store,
        channel: ChannelName,
        read: Callable[[], Awaitable[tuple[Sequence[bytes], bool]]],
        *,
        limited_to: str | None,
        look_every: float = LOOK_EVERY,
    ) -> AsyncIterator[bytes]:
        """What one client is sent: the events that `read` returns, until it says that no more will come. It
        is called again when the channel rings, and every so often: not every entry has to ring."""
        with self._viewers.another(limited_to), store.subscribe(channel) as rings:
            yield RECONNECT
            told_at = clock.monotonic()
            while True:
                try:
                    events, is_over = await read()
                    for each in events:
                        told_at = clock.monotonic()
                        yield each
                    if is_over:
                        yield event("end", {"at": clock.rfc3339()})
                        return
                except Unavailable as error:
                    told_at = clock.monotonic()
                    yield event("problem", error.api_face()["error"])
                    await asyncio.sleep(LOOK_EVERY)
                if clock.monotonic() - told_at > BEAT_EVERY:
                    told_at = clock.monotonic()
                    yield event("beat", {"at": clock.rfc3339()})
                await rings.wait(look_every)


def numbered(number: object, message: bytes) -> bytes:
    """The event with its number: a browser that comes back says with Last-Event-ID which one it had last."""
    return b"id: %b\n%b" % (str(number).encode(), message)
