"""One Redis connection, shared by everything in a process. The hot path, so written by hand:
redis-py takes ~60 µs of CPU a command, this about 3 (`asyncio.Protocol` + hiredis).

Commands gathered in one tick of the loop leave in one write; replies come back in order. RESP3 lets
pub/sub messages arrive on the same connection, so a thousand waiters need no second one, and a
subscription is in force before any command that was sent after it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

import hiredis

from remuda.base.errors import Broken, RemudaError, StoreFull, StoreUnavailable
from remuda.base.log import get_logger

log = get_logger(__name__)

Reply = asyncio.Future[Any]

# What Redis says when the command is right but now is not the time.
_PASSING = {"LOADING", "READONLY", "MASTERDOWN", "MISCONF", "BUSY", "NOREPLICAS", "TRYAGAIN"}
_WORDS = {"MISCONF": "it cannot write to its disk; free some space there, and it continues by itself. "}
_CONFIRMATIONS = ("subscribe", "unsubscribe")
# What a server says that is not, or not enough of, a master now. It has done nothing of what it refuses so.
_MOVED = {"READONLY", "NOREPLICAS"}
LOST = "The connection to Redis was lost; the command may or may not have been executed"


def pack(*args: str | bytes | int | float) -> bytes:
    """A command's bytes on the wire."""
    try:
        packed: bytes = hiredis.pack_command(args)  # type: ignore[arg-type]  # its stub asks for one argument
    except UnicodeEncodeError:
        # Text that was read from Redis and is not UTF-8 becomes the bytes that it was read from.
        raw = (arg.encode(errors="surrogateescape") if isinstance(arg, str) else arg for arg in args)
        packed = hiredis.pack_command(tuple(raw))  # type: ignore[arg-type]
    return packed


class Batch:
    """Commands that leave in one write: a single one, or a whole transaction."""

    __slots__ = ("deadline", "is_read", "packed", "refusal", "replies", "sent_at")

    def __init__(self, packed: bytes, replies: Sequence[Reply | None], *, is_read: bool = False) -> None:
        self.packed = packed
        self.is_read = is_read
        """Whether it changes nothing, so that it may be sent again, once."""
        self.sent_at = 0.0
        """When a read was sent, by the loop's time."""
        self.replies = replies
        """One for each command, in order; one that is None is read and dropped."""
        self.deadline = 0.0
        """Until when it may wait, by the loop's time; 0 as long as it does not."""
        self.refusal: RemudaError | None = None
        """Why it waits for a better master, if it does."""


async def settle(replies: Sequence[Reply]) -> None:
    """Waits until all of them are here, whether they are results or errors. `asyncio.gather` would lose a
    cancellation if one of them fails in the same moment, and its caller would wait for Redis to come back."""
    await asyncio.wait(replies)
    for reply in replies:
        reply.exception()  # Now none is reported as never looked at.


class CommandRefused(Broken):
    """Redis refuses a command as wrong."""


def translate(error: hiredis.ReplyError) -> RemudaError:
    """Our error for an error reply of Redis."""
    text = str(error)
    code = text.partition(" ")[0]
    if code == "OOM":
        return StoreFull(f"Redis is full: {text}")
    if code in _PASSING:
        return StoreUnavailable(f"Redis refuses work: {_WORDS.get(code, '')}{text}")
    if code == "NOPERM":
        return CommandRefused(
            f"{text}; its ACL must allow Remuda all keys, channels and commands: ~* &* +@all"
        )
    return CommandRefused(text)


def fail(reply: Reply | None, error: RemudaError) -> None:
    """Has a command fail for who waits for it, if anybody does."""
    if reply is None or reply.done():
        return
    reply.set_exception(error)
    if isinstance(error, StoreUnavailable):
        # A caller with several commands under way stops at the first that fails. Python would complain that
        # the exceptions of the others, which have the same cause, were never retrieved.
        reply.exception()


def _log_refusal(confirmed: Reply) -> None:
    if isinstance(error := confirmed.exception(), CommandRefused):
        log.error("subscription refused", reason=error.message)


class Wire(asyncio.Protocol):
    """Sends packed commands and hands each reply to the future that waits for it."""

    def __init__(
        self,
        *,
        on_push: Callable[[list[Any]], None] = lambda message: None,
        on_lost: Callable[["Wire"], None] = lambda wire: None,
        on_drained: Callable[[], None] = lambda: None,
        on_refused: Callable[["Wire", Batch, str, RemudaError], bool] = lambda *_: False,
        on_unanswered: Callable[[Batch], bool] = lambda _: False,
    ) -> None:
        """`on_refused` is asked whether a batch that this server is not the right one for, by the code of its
        error, is tried again later; if not, it fails with the error. `on_unanswered` is asked the same about
        a read that was under way when the connection was lost."""
        self._loop = asyncio.get_running_loop()
        self._on_push = on_push
        self._on_lost = on_lost
        self._on_drained = on_drained
        self._on_refused = on_refused
        self._on_unanswered = on_unanswered
        self.server = ("", 0)
        """Where it leads to, as Sentinel named it; nowhere for a unix socket."""
        self._is_retired = False
        self._reader = hiredis.Reader(encoding="utf-8", errors="surrogateescape")
        self._outbox: list[bytes] = []
        self._pending: deque[Batch] = deque()
        self._answered = 0
        """How many replies of the first batch have come."""
        self._transport: asyncio.WriteTransport | None = None
        self._refusal: hiredis.ReplyError | None = None
        """Why Redis refused a command of a transaction: EXEC itself only says that it did."""
        self._answered_at = 0.0
        self.is_full = False
        """Whether Redis reads slower than we write: then new commands wait outside."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast: uvloop's transports are none of asyncio's classes.
        self._transport = cast(asyncio.WriteTransport, transport)

    @property
    def own_host(self) -> str:
        """The address of this end; empty for a unix socket."""
        name = None if self._transport is None else self._transport.get_extra_info("sockname")
        return str(name[0]) if isinstance(name, tuple) else ""

    @property
    def is_closed(self) -> bool:
        return self._transport is None

    def send(self, batch: Batch) -> None:
        """Sends a batch at the end of this tick."""
        if not self._pending:
            self._answered_at = self._loop.time()
        if batch.is_read:
            batch.sent_at = self._loop.time()
        self._pending.append(batch)
        if self._transport is None:
            self._fail_pending()
            return
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox.append(batch.packed)

    def post(self, packed: bytes, *, channels: int = 1) -> None:
        """Sends SUBSCRIBE or UNSUBSCRIBE, without waiting for the reply."""
        # A push confirms it, but an error refuses it, and both stand in line with the replies of all others.
        confirmed = self._loop.create_future()
        confirmed.add_done_callback(_log_refusal)
        # One for each channel: each has a confirmation of its own.
        self.send(Batch(packed, (confirmed, *[None] * (channels - 1))))

    def _flush(self) -> None:
        if self._transport is not None and self._outbox:
            self._transport.write(b"".join(self._outbox))
        self._outbox.clear()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        self._answered_at = self._loop.time()
        try:
            while (message := self._reader.gets()) is not False:
                if message.__class__ is not hiredis.PushNotification or message[0] in _CONFIRMATIONS:
                    self._settle(message)
                else:
                    self._on_push(message)
        except hiredis.ProtocolError:
            self.abort()

    def _settle(self, message: Any) -> None:
        if not self._pending:
            self.abort()  # A reply without a command: from here on, replies would go to the wrong callers.
            return
        batch = self._pending[0]
        reply = batch.replies[self._answered]
        self._answered += 1
        if self._answered == len(batch.replies):
            self._pending.popleft()
            self._answered = 0
        if isinstance(message, hiredis.ReplyError):
            self._settle_error(message, reply, batch)
        elif reply is not None and not reply.done():
            reply.set_result(message)
        if self._is_retired and not self._pending:
            self.abort()

    def _settle_error(self, error: hiredis.ReplyError, reply: Reply | None, batch: Batch) -> None:
        if reply is None:
            self._refusal = error
            return
        if str(error).startswith("EXECABORT") and self._refusal is not None:
            error, self._refusal = self._refusal, None
        code, ours = str(error).partition(" ")[0], translate(error)
        if code not in _MOVED or not self._on_refused(self, batch, code, ours):
            fail(reply, ours)

    def is_stuck(self, timeout: float) -> bool:
        """Whether commands have waited this long without any answer coming in."""
        return bool(self._pending) and self._loop.time() - self._answered_at > timeout

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        self._on_drained()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        # First, so that what is sent again goes to another connection.
        self._on_lost(self)
        self._fail_pending()

    def _fail_pending(self) -> None:
        answered, self._answered = self._answered, 0
        while self._pending:
            batch = self._pending.popleft()
            if not (batch.is_read and self._on_unanswered(batch)):
                for reply in batch.replies[answered:]:
                    fail(reply, StoreUnavailable(LOST))
            answered = 0

    def retire(self, timeout: float) -> None:
        """Closes once all replies have come, or after this time: it is sent nothing more."""
        self._is_retired = True
        if self._pending:
            self._loop.call_later(timeout, self.abort)
        else:
            self.abort()

    def abort(self) -> None:
        """Gives the connection up; everything pending fails."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Sends what is gathered, then closes."""
        self._flush()
        if self._transport is not None:
            self._transport.close()
