"""The face of Redis: typed commands, transactions, scripts and subscriptions over one shared connection.

It reconnects by itself. A command that is called while Redis is away waits for it, at most `timeout`
seconds, then fails with StoreUnavailable; a command under way when the connection breaks fails at
once, since it cannot be known whether it was done. A read is sent again instead: it changes nothing. One
that a server refuses because it is not the master, or has too few replicas, was not done: it waits too, and
goes to the master that Sentinel names.
"""

import asyncio
import bisect
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from types import TracebackType
from typing import Any, Self, cast

from remuda.base.errors import Misconfigured, RemudaError, StoreUnavailable
from remuda.base.hosts import host_port
from remuda.base.log import get_logger
from remuda.keyspace.fleet import BELL
from remuda.keyspace.key import ChannelName, Name
from remuda.store.commands import READS, Commands, Value
from remuda.store.dial import dial
from remuda.store.script import Script
from remuda.store.sentinel import find_master, follow_master
from remuda.store.transaction import ProvidedTransaction, Transaction
from remuda.store.url import parse_url
from remuda.store.wire import Batch, CommandRefused, Reply, Wire, fail, pack, settle

log = get_logger(__name__)

TIMEOUT = 5.0
FIRST_RETRY = 0.05
LAST_RETRY = 1.0
# Between two attempts at what a server refuses for want of replicas.
ASK_AGAIN = 0.2
# A Redis that is away is logged once, and then this often.
LOG_EVERY = 60.0
MAX_WAITING = 20_000
"""Commands held back while Redis is away; beyond that it is kinder to fail at once."""


class Subscription:
    """What came in on a channel. Messages are hints: after a reconnect one may have been missed, so
    `wait` also returns then, empty-handed, and its caller looks at the state itself."""

    KEEP = 1000

    def __init__(self) -> None:
        self._messages: deque[str] = deque(maxlen=self.KEEP)
        self._woken = asyncio.Event()

    def wake(self, message: str | None = None) -> None:
        """Ends a wait, now or next."""
        if message is not None:
            self._messages.append(message)
        self._woken.set()

    async def wait(self, timeout: float | None = None) -> list[str]:
        """All messages since the last call; waits for one, a reconnect, or the time-out."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._woken.wait()
        self._woken.clear()
        messages = list(self._messages)
        self._messages.clear()
        return messages


class Store(Commands):
    """A Redis server, as Remuda sees it. Use it as `async with Store(url) as store`."""

    def __init__(self, url: str, *, prefix: str = "", name: str = "", timeout: float = TIMEOUT) -> None:
        self.url = parse_url(url)
        self.prefix = prefix
        self._name = name
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._wire: Wire | None = None
        self.own_host = ""
        """The address that this machine has towards Redis; empty if that is reached by a unix socket."""
        self.connection_number = 0
        """How many connections there have been: who finds another number than before may have missed much."""
        self._waiting: deque[Batch] = deque()
        """First those that a server has refused, then those that came while Redis was away."""
        self._listeners: dict[str, list[Subscription]] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._stirred = asyncio.Event()
        """Set when the connection was lost, or its server may not be the master any more."""
        self._is_in_doubt = False
        self._is_closed = False
        self._is_hasty = False
        self._keepers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(self._timeout):
                await self._connect()
        except TimeoutError:
            hint = "" if self.url.tls is None else "; it may not speak TLS: try redis:// instead of rediss://"
            raise StoreUnavailable(f"Redis at {self.url} does not answer{hint}") from None
        self._keepers = [asyncio.create_task(self._keep_connected(), name="store keeper")]
        if self.url.service:
            for each in self.url.hosts:
                following = follow_master(self.url, each, self._doubt)
                self._keepers.append(asyncio.create_task(following, name="hear a Sentinel"))
        return self

    async def check_rights(self) -> None:
        """Misconfigured if this user of Redis may not run scripts or use channels, as every role does. A role
        asks at its start; else some request would be the first to fail."""
        tries = (self.send("EVAL", "return 0", 0), self.send("PUBLISH", BELL("rights"), ""))
        for reply in await asyncio.gather(*tries, return_exceptions=True):
            if isinstance(reply, CommandRefused) and reply.message.startswith("NOPERM"):
                raise Misconfigured(f"Redis at {self.url} cannot be used: {reply.message}")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        self._is_closed = True
        if self._wire is not None:
            self._wire.close()
        self._fail_waiting(before=float("inf"))

    @property
    def is_connected(self) -> bool:
        return self._wire is not None

    def hasten(self) -> None:
        """Has commands fail at once while Redis is away: for who leaves, and has no time to wait for it."""
        self._is_hasty = True
        if self._wire is None:
            self._fail_waiting(before=float("inf"))

    # Sending

    def send(self, *args: Value) -> Awaitable[Any]:
        reply = self._loop.create_future()
        self._dispatch(Batch(self.pack(args), (reply,), is_read=args[0] in READS))
        return reply

    def pack(self, args: Sequence[Value]) -> bytes:
        """A command's bytes, with the prefix before each key."""
        if self.prefix:
            args = [self.prefix + arg if isinstance(arg, Name) else arg for arg in args]
        return pack(*args)

    def _dispatch(self, batch: Batch) -> None:
        wire = self._wire
        if wire is not None and not wire.is_full:
            wire.send(batch)
        elif self._is_closed:
            _fail(batch, f"The connection to Redis at {self.url} has been closed")
        elif wire is None and self._is_hasty:
            _fail(batch, f"Redis at {self.url} is not reachable")
        elif len(self._waiting) < MAX_WAITING:
            batch.deadline = self._loop.time() + self._timeout
            self._waiting.append(batch)
            self._set_alarm()
        else:
            _fail(batch, f"{MAX_WAITING} commands wait for Redis, which is the limit")

    def _send_waiting(self) -> None:
        while self._waiting and self._wire is not None and not self._wire.is_full:
            batch = self._waiting.popleft()
            batch.refusal = None
            if not all(reply is None or reply.done() for reply in batch.replies):
                self._wire.send(batch)

    def _set_alarm(self) -> None:
        # Not the keeper's business: it may itself be waiting for a Redis that accepts and never answers.
        if self._waiting and self._alarm is None:
            self._alarm = self._loop.call_at(self._waiting[0].deadline, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        self._fail_waiting(before=self._loop.time())
        self._set_alarm()

    def _fail_waiting(self, *, before: float) -> None:
        while self._waiting and self._waiting[0].deadline <= before:
            batch = self._waiting.popleft()
            _fail(batch, batch.refusal or f"Redis at {self.url} does not answer")

    # Staying connected

    async def _connect(self) -> None:
        wire = await dial(self.url, self._make_wire, name=self._name)
        if wire.is_closed:  # Lost in the moment between its greeting and now.
            raise StoreUnavailable(f"Redis at {self.url} closed the connection")
        self._wire = wire
        self.own_host = wire.own_host
        self.connection_number += 1
        for channel in self._listeners:
            wire.post(pack("SUBSCRIBE", channel))
        self._send_waiting()
        for listeners in self._listeners.values():
            for listener in listeners:
                listener.wake()

    def _make_wire(self) -> Wire:
        return Wire(
            on_push=self._on_push,
            on_lost=self._on_lost,
            on_drained=self._send_waiting,
            on_refused=self._on_refused,
            on_unanswered=self._on_unanswered,
        )

    def _on_lost(self, wire: Wire) -> None:
        if wire is self._wire:
            self._wire = None
            self._stirred.set()
            if self._is_hasty:
                self._fail_waiting(before=float("inf"))

    def _on_refused(self, wire: Wire, batch: Batch, code: str, error: RemudaError) -> bool:
        """Keeps a batch that was refused, and looks for a master that takes it; False if its time is up."""
        now = self._loop.time()
        batch.deadline = batch.deadline or now + self._timeout
        if batch.deadline <= now or self._is_hasty or self._is_closed:
            return False
        if batch.refusal is None:
            batch.refusal = error
            first = next((at for at, each in enumerate(self._waiting) if each.refusal is None), None)
            self._waiting.insert(len(self._waiting) if first is None else first, batch)
            self._set_alarm()
        if code == "READONLY":  # A fail-over has made this server a replica.
            self._leave(wire)
        else:
            self._doubt()
        return True

    def _on_unanswered(self, batch: Batch) -> bool:
        """Keeps a read for the next connection, within the time that it had from the beginning."""
        batch.deadline = batch.deadline or batch.sent_at + self._timeout
        if batch.deadline <= self._loop.time() or self._is_hasty or self._is_closed:
            return False
        batch.is_read = False  # Once: it may itself be what Redis hangs up on.
        bisect.insort(self._waiting, batch, key=lambda each: each.deadline)
        if self._alarm is not None and self._waiting[0] is batch:
            self._alarm.cancel()
            self._alarm = None
        self._set_alarm()
        # The lost connection may have been one to a former master, with the next one there already.
        self._loop.call_soon(self._send_waiting)
        return True

    def _leave(self, wire: Wire) -> None:
        """Sends no more to this server. It may still answer what it was asked."""
        wire.retire(self._timeout)
        self._on_lost(wire)

    def _doubt(self) -> None:
        """Has the keeper ask Sentinel whether there is another master."""
        self._is_in_doubt = True
        self._stirred.set()

    async def _keep_connected(self) -> None:
        """Watches the connection; makes a new one when it is lost or no longer answers."""
        check_every = min(1.0, self._timeout / 4)
        retry = FIRST_RETRY
        logged_at = connected_at = -math.inf
        while True:
            if self._wire is None:
                await asyncio.sleep(retry)
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(check_every):
                        await self._stirred.wait()
            self._stirred.clear()
            if self._wire is not None:
                retry = FIRST_RETRY
                if self._wire.is_stuck(self._timeout):
                    log.warning("redis is stuck", url=str(self.url))
                    self._wire.abort()
                elif self._is_in_doubt:
                    await self._check_master(self._wire)
                continue
            if self._loop.time() < connected_at + FIRST_RETRY:
                # A replica takes connections, and refuses at once what waits for a master.
                await asyncio.sleep(FIRST_RETRY)
            try:
                async with asyncio.timeout(self._timeout):
                    await self._connect()
                log.info("redis connected", url=str(self.url))
                logged_at, connected_at = -math.inf, self._loop.time()
            except (StoreUnavailable, TimeoutError) as error:
                if self._loop.time() >= logged_at + LOG_EVERY:
                    logged_at = self._loop.time()
                    log.warning("redis away", url=str(self.url), reason=str(error) or "no answer")
                retry = min(retry * 2, LAST_RETRY)

    async def _check_master(self, wire: Wire) -> None:
        """Leaves a server that is no longer the master. Else asks it again for what it has refused."""
        self._is_in_doubt = False
        if self.url.service:
            try:
                master = await find_master(self.url)
            except OSError as error:
                # Once it is needed, the attempt to connect says so.
                log.debug("master not known", url=str(self.url), reason=str(error))
                master = wire.server
            if master != wire.server:
                log.info("redis has another master", url=str(self.url), master=host_port(*master))
                self._leave(wire)
                return
        if self._waiting:
            await asyncio.sleep(ASK_AGAIN)
            self._send_waiting()

    # Transactions and scripts

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Commands called on it are done together when the block ends; await their replies after it."""
        transaction = Transaction(self)
        yield transaction
        await transaction.execute()

    @asynccontextmanager
    async def transaction_provided(self, key: Name) -> AsyncIterator[ProvidedTransaction]:
        """The same, but only if this key is there then: for what belongs to it and must go with it."""
        transaction = ProvidedTransaction(self, key)
        yield transaction
        await transaction.execute()

    async def send_together(self, packed: Sequence[bytes], *, then: Mapping[Reply, bytes]) -> list[Any]:
        """The replies of these commands, done between MULTI and EXEC; those behind it are done then too."""
        reply = self._loop.create_future()
        # One write: nothing of another task gets in between on the shared connection. The replies to
        # MULTI and the QUEUED ones are dropped; a refused command makes EXEC fail, which says so.
        whole = b"".join((self.pack(("MULTI",)), *packed, self.pack(("EXEC",)), *then.values()))
        self._dispatch(Batch(whole, [*[None] * (len(packed) + 1), reply, *then]))
        replies = [reply, *then]
        await settle(replies)
        results, *_ = [each.result() for each in replies]
        return cast(list[Any], results)

    def start(
        self, script: Script, *, keys: Sequence[Name], args: Sequence[Value] = ()
    ) -> asyncio.Future[Any]:
        """The reply of the script, if Redis has it, else it fails with NOSCRIPT: for where a task a call
        costs too much. `run` is for everything else."""
        script.check_call(keys, args)
        reply = self._loop.create_future()
        self._dispatch(Batch(self.pack(("EVALSHA", script.sha, len(keys), *keys, *args)), (reply,)))
        return reply

    async def run(self, script: Script, *, keys: Sequence[Name], args: Sequence[Value] = ()) -> Any:
        """What the script returns; Broken when the call does not fit its header."""
        script.check_call(keys, args)
        call = (len(keys), *keys, *args)
        try:
            try:
                return await self.send("EVALSHA", script.sha, *call)
            except CommandRefused as error:
                if not error.message.startswith("NOSCRIPT"):
                    raise
            return await self.send("EVAL", script.source, *call)
        except CommandRefused as error:
            raise CommandRefused(f"{script.name}: {error}") from error

    # Channels

    @contextmanager
    def subscribe(self, channel: ChannelName, into: Subscription | None = None) -> Iterator[Subscription]:
        """Messages of a channel, beside those that `into` hears already. In force before any command
        that is sent inside the block."""
        subscription = Subscription() if into is None else into
        name = self.prefix + channel
        listeners = self._listeners.setdefault(name, [])
        listeners.append(subscription)
        if len(listeners) == 1 and self._wire is not None:
            self._wire.post(pack("SUBSCRIBE", name))
        try:
            yield subscription
        finally:
            listeners.remove(subscription)
            if not listeners:
                del self._listeners[name]
                if self._wire is not None:
                    self._wire.post(pack("UNSUBSCRIBE", name))

    async def count_listeners(self, channels: Sequence[ChannelName]) -> list[int]:
        """For each channel, how many connections listen to it."""
        if not channels:
            return []
        reply = await self.send("PUBSUB", "NUMSUB", *channels)
        return [int(count) for count in reply[1::2]]

    def _on_push(self, message: list[Any]) -> None:
        if message[0] == "message":
            for listener in self._listeners.get(message[1], ()):
                listener.wake(message[2])


def _fail(batch: Batch, reason: str | RemudaError) -> None:
    for reply in batch.replies:
        fail(reply, StoreUnavailable(reason) if isinstance(reason, str) else reason)
