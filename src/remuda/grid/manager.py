"""The manager creates sessions: it answers `POST /session` and nothing else.

It writes the session down, finds it a slot, waits for the orchestrator to schedule a node and for the
node to have the browser, and answers the client. Whatever goes wrong on the way ends the session with a
log code and reaches the client at once, with the cause.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from msgspec.structs import replace

from remuda.accounts.model import hide_tokens
from remuda.accounts.room import AccountsConfig
from remuda.accounts.tickets import Tickets, is_still_backed
from remuda.base import clock
from remuda.base.errors import (
    Draining,
    RemudaError,
    SessionExists,
    StoreUnavailable,
    Unauthorized,
    UnknownMethod,
)
from remuda.base.hosts import LOOPBACK_ONLY, InternalHosts
from remuda.base.ids import ManagerId, SessionId, is_uuid, new_id
from remuda.base.log import get_logger
from remuda.fleet.bell import wait_for
from remuda.fleet.internal import serve_internally
from remuda.fleet.liveness import Beat, Heart, unix_seconds
from remuda.fleet.origin import DEFAULT_ACCOUNT, Origin
from remuda.fleet.permits import NOTHING_MORE, Allowance
from remuda.fleet.relay import Address, Answer, Handle, Limits, Relay, Request
from remuda.fleet.role import Role
from remuda.fleet.secret import HerdSecret
from remuda.fleet.tasks import Tasks, repeat, retry_until_redis_returns
from remuda.fleet.tracing import Kind, Span, get_tracer, read_context
from remuda.fleet.uses import Uses, return_use
from remuda.grid.abandoned import Abandoned, present
from remuda.grid.admission import Admission
from remuda.grid.capabilities import Capabilities, for_client, read_request
from remuda.grid.failures import CreationFailed, SessionForgotten, failure_of, for_who_wanted_a_session
from remuda.grid.model import State
from remuda.grid.omission import LARGE, encode_request, without_options
from remuda.grid.options import labels_of
from remuda.grid.queue import Queue
from remuda.grid.replaced import Replaced
from remuda.grid.sessions import Sessions, manager_beat, session_bell
from remuda.grid.sifting import check_all, with_named_browsers
from remuda.grid.timeouts import Timeouts, timeouts
from remuda.grid.usage import GRID
from remuda.grid.wire import SESSION, answer_error, answer_value, read_json
from remuda.keyspace import grid
from remuda.keyspace.log_codes import BY_CODE
from remuda.storage.usage import ARTIFACTS
from remuda.store import Store

log = get_logger(__name__)
tracer = get_tracer("manager")

MAX_BODY = 64 << 20
"""Capabilities may carry a whole browser profile or extensions."""
MAX_BODY_BYTES = 256_000_000
"""What the bodies of all requests under way may take in memory."""
MAX_WAITING_BYTES = 256_000_000
"""What the large capabilities of all sessions that wait may take in Redis."""
HEARTBEAT_TTL = 120
DRAIN_SHARE = 5.0
LAST_WORDS = 1.0
BOOKS_EVERY = 1.0
UNTIL_GATEWAYS_KNOW = 3.0
"""A gateway looks every two seconds which managers there are."""


class Drain:
    """Counts the requests under way, refuses new ones once it has begun, and says when the last is done."""

    def __init__(self) -> None:
        self.under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.is_begun = False

    @contextmanager
    def work(self) -> Iterator[None]:
        """One piece of work; Draining once the drain has begun."""
        if self.is_begun:
            raise Draining
        self.under_way += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.under_way -= 1
            if not self.under_way:
                self._idle.set()

    def begin(self) -> None:
        """From now on refuses new work."""
        self.is_begun = True

    async def finished(self, timeout: float) -> bool:
        """Waits for what is under way; False if some of it is not done in time."""
        try:
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True


class Manager(Role):
    """Creates WebDriver sessions."""

    name = "manager"

    def __init__(
        self,
        store: Store,
        *,
        hosts: InternalHosts = LOOPBACK_ONLY,
        body_bytes: int = MAX_BODY_BYTES,
        waiting_bytes: int = MAX_WAITING_BYTES,
        allowed: Allowance = NOTHING_MORE,
        ticket_lifetime: float = AccountsConfig.ticket_lifetime,
    ) -> None:
        super().__init__()
        self._allowed = allowed
        self.manager_id = ManagerId(self.id)
        self._store = store
        self._hosts = hosts
        self.scheme = hosts.scheme
        self._sessions = Sessions(store)
        self._timeouts = timeouts(store)
        self._heart = Heart(store)
        self._drain = Drain()
        self._secret = HerdSecret(store)
        self._tickets = Tickets(self._secret, ticket_lifetime)
        self._relay = Relay(
            self._route,
            lambda _, error: answer_error(for_who_wanted_a_session(error)),
            guard=self._secret,
            limits=Limits(bodies=body_bytes),
            account_of=lambda request: Origin.read(request.header, address="").shares_as,
        )
        self._server: asyncio.Server | None = None
        self._uses = Uses(store, services=(GRID.name, ARTIFACTS.name))
        self._queue = Queue(store, self._uses)
        self._admission = Admission(store, waiting_bytes=waiting_bytes)
        self._abandoned = Abandoned(store)
        self._presence = ExitStack()
        self._port = 0
        self._created: set[SessionId] = set()
        """Sessions that it no longer creates, and that are still among those that end with it."""
        self._reading = asyncio.Lock()
        self._reading_of: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._steps: set[asyncio.Timeout] = set()
        self._farewells = Tasks()

    # Its life

    async def start(self) -> None:
        await self._secret.read()
        self._server, self._port = await serve_internally(self._relay, self._hosts)
        self.address = str(Address(self._hosts.advertise, self._port))
        await self._timeouts.write_defaults()
        # Before it is registered: a process that finds it registered must find it present.
        self._presence.enter_context(present(self._store, self.manager_id))
        await self._register()
        self._heart.keep(self._beat())

    async def _register(self) -> None:
        own = self.manager_id
        async with self._store.transaction() as transaction:
            transaction.sadd(grid.MANAGERS(), own)
            transaction.sadd(grid.MANAGERS_CREATING(), own)
            transaction.hset(grid.MANAGER(own), {"host": self._hosts.advertise, "port": self._port})
            if self._hosts.certificate is not None:
                transaction.set(grid.MANAGER_SCHEME(own), self.scheme)
            self._beat().write(transaction)

    def _beat(self) -> Beat:
        return Beat(grid.MANAGER_HEARTBEAT(self.manager_id), ttl=HEARTBEAT_TTL, value=unix_seconds)

    async def serve(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._heart.run(), name="heart of the manager")
            tasks.create_task(self._queue.run(), name="queue of the manager")
            tasks.create_task(self._uses.run(), name="uses of accounts")
            keep = repeat(self._keep_books, every=BOOKS_EVERY, failure="manager not written down")
            tasks.create_task(keep, name="books of the manager")
            tasks.create_task(self._abandoned.run(), name="look for gone managers")
            tasks.create_task(Replaced(self._store).run(), name="look for replaced orchestrators")
            tasks.create_task(self._admission.run(), name="look at redis' memory")

    async def drain(self) -> None:
        await self._deregister()
        # Gateways still send sessions here until they look again, and a refusal would reach their clients.
        if await self._store.exists(grid.MANAGERS()):
            await asyncio.sleep(UNTIL_GATEWAYS_KNOW)
        self._drain.begin()
        if not await self._drain.finished(DRAIN_SHARE):
            await self._cut_short()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._cut_short()
        self._relay.close()
        await self._farewells.finish(LAST_WORDS)
        await self._uses.finish(LAST_WORDS)
        await self._deregister()
        await self._forget_created()
        # What it could not end itself is ended by those who find it gone.
        if not await self._store.exists(grid.MANAGER_SESSIONS(self.manager_id)):
            await self._store.srem(grid.MANAGERS_CREATING(), self.manager_id)
        self._presence.close()

    async def _cut_short(self) -> None:
        """Refuses the clients that still wait."""
        self._drain.begin()
        while self._steps:
            self._steps.pop().reschedule(asyncio.get_running_loop().time())
        await self._drain.finished(LAST_WORDS)

    async def _deregister(self) -> None:
        async with self._store.transaction() as transaction:
            transaction.srem(grid.MANAGERS(), self.manager_id)
            transaction.delete(grid.MANAGER(self.manager_id), grid.MANAGER_SCHEME(self.manager_id))
            transaction.expire(grid.MANAGER_HEARTBEAT(self.manager_id), 1)
        self._heart.forget(self._beat())

    async def _keep_books(self) -> None:
        """Has Redis know what is true of this manager, also when it has lost it or others thought it gone."""
        await self._forget_created()
        own = self.manager_id
        # Its beat is gone alone when the clock of Redis jumps, as that of a laptop does that was asleep.
        if await self._store.exists(grid.MANAGER(own), grid.MANAGER_HEARTBEAT(own)) < 2:
            await self._register()

    async def _forget_created(self) -> None:
        """Takes what it has created off the list of what ends with it. Later than each is created: if this
        manager is found gone, only sessions that no client was given are ended."""
        if created := tuple(self._created):
            await self._store.hdel(grid.MANAGER_SESSIONS(self.manager_id), *created)
            self._created.difference_update(created)

    # A request

    def _route(self, request: Request) -> Handle:
        if request.method != "POST":
            raise UnknownMethod(f"{request.method} is not possible here; POST creates a session")
        return Handle(self._create, MAX_BODY)

    async def _create(self, request: Request, body: bytes) -> Answer:
        origin = Origin.read(request.header, address=request.client)
        if not origin.account:  # It did not come through a front door.
            origin = replace(origin, account=DEFAULT_ACCOUNT)
        agent = request.header("user-agent") or ""
        with self._drain.work(), _span_of(request, origin, agent) as span:
            is_large = len(body) > LARGE
            async with self._turn_to_read(origin.account) if is_large else nullcontext():
                body = await asyncio.to_thread(hide_tokens, body) if is_large else hide_tokens(body)
                wanted = with_named_browsers(read_request(read_json(body)))
                del body  # The session may wait for long.
                # In a thread where it is large: each of many sets can have many options.
                check = partial(check_all, wanted, self._allowed)
                await asyncio.to_thread(check) if is_large else check()
                labels = labels_of(wanted)
                # In a thread where it is large: hashing it takes a tenth of a second.
                encode = partial(encode_request, wanted)
                requested = await asyncio.to_thread(encode) if is_large else encode()
                if is_large:
                    del check, encode
                    wanted = await asyncio.to_thread(without_options, wanted)
            await self._admission.admit(requested, account=origin.shares_as)
            limits = await self._timeouts.read()
            # The front door looked at the token when the head came, of this request or of a WebSocket. What
            # asks for the session may have come much later.
            if origin.token and not await is_still_backed(self._store, origin):
                raise Unauthorized("The token has expired or was revoked before the session was asked for.")
            write_down = partial(
                self._sessions.create,
                requested=requested,
                origin=origin,
                user_agent=agent,
                labels=labels,
                trace=span.context,
                manager=self.manager_id,
            )
            try:
                return await self._create_once(request, origin, span, wanted, write_down, limits)
            except SessionForgotten:
                if _name_in(request):  # It is taken now.
                    raise
                # Its client has heard nothing of it yet. Once: a Redis that loses more is not to be trusted.
                return await self._create_once(request, origin, span, wanted, write_down, limits)

    @asynccontextmanager
    async def _turn_to_read(self, account: str) -> AsyncIterator[None]:
        """Reading takes several times the memory of a body, so one large one is read at a time. It waits for
        one of each other account at most, however many those have."""
        own = self._reading_of.setdefault(account, asyncio.Lock())
        async with own, self._reading:
            yield

    async def _create_once(
        self,
        request: Request,
        origin: Origin,
        span: Span,
        wanted: list[Capabilities],
        write_down: Callable[[SessionId], Awaitable[None]],
        limits: Timeouts,
    ) -> Answer:
        """Leads a new session to its browser; SessionForgotten if Redis loses it on the way."""
        session = await self._new_session(request, account=origin.account)
        span.set({"remuda.session.id": session})
        began = clock.monotonic()
        try:
            async with self._step("QTIMEOUT"):
                await write_down(session)
                self._heart.keep(manager_beat(session))
                with tracer.span("wait in queue", span.context):
                    await self._queue.claim_slot(
                        session,
                        wanted,
                        partial(write_down, session),
                        account=origin.account,
                        timeout=limits.queue,
                    )
            async with self._step("OTIMEOUT"):
                await self._await_scheduled(session, timeout=limits.scheduling)
            async with self._step("NTIMEOUT"):
                actual = await self._await_node(session, timeout=limits.node_startup)
                await self._hand_over(session, took=clock.monotonic() - began)
        except asyncio.CancelledError:
            span.fail("CLEFT", BY_CODE["CLEFT"].meaning)
            self._say_farewell(session, origin.account, "CLEFT")
            raise
        except RemudaError as error:
            await self._give_up(session, origin.account, error)
            raise
        finally:
            self._heart.forget(manager_beat(session))
            self._uses.forget(origin.account, session)
        self._created.add(session)
        ticket = self._tickets.mint(session, origin)
        seen = for_client(actual, session=session, front_door=origin.websocket_url, ticket=ticket)
        return answer_value({"sessionId": session, "capabilities": seen})

    async def _new_session(self, request: Request, *, account: str) -> SessionId:
        """A new session's id, now one of what its account uses: the one in the path, which only a gateway can
        ask for, or a fresh one."""
        named = _name_in(request)
        session = SessionId(named or new_id())
        # First reserved: the use of this name may be that of a session that runs.
        if named and (not is_uuid(named) or not await self._sessions.reserve(session)):
            raise SessionExists(f"There is, or was, a session {named[:50]!r}")
        try:
            await self._uses.take(account, session)
        except BaseException:
            if named:  # Its client may come back with it.
                unreserve = partial(self._sessions.unreserve, session)
                giving_up = retry_until_redis_returns(unreserve, failure="id not given up", session=session)
                task = self._farewells.spawn(giving_up, name=f"give up {session}")
                await asyncio.wait([task], timeout=LAST_WORDS)
            raise
        return session

    @asynccontextmanager
    async def _step(self, code: str) -> AsyncIterator[None]:
        """A step of the way. If it is cut short, or Redis goes away, the session ends with this code."""
        try:
            async with asyncio.timeout(None) as step:
                self._steps.add(step)
                try:
                    yield
                finally:
                    self._steps.discard(step)
        except TimeoutError:
            raise CreationFailed(code, "The manager is shutting down") from None
        except StoreUnavailable as error:
            raise CreationFailed(code, for_who_wanted_a_session(error).message) from error

    async def _await_scheduled(self, session: SessionId, *, timeout: float) -> None:
        async def look() -> bool | None:
            # In this order: a session that ends gives its slot back afterwards.
            slot = self._store.exists(grid.SESSION_SLOT(session))
            status = await self._store.hgetall(grid.SESSION_STATUS(session))
            if State.TERMINATED.stamp in status:
                raise await failure_of(self._sessions, session)
            if State.PENDING.stamp in status:
                return True
            if not await slot:  # It was claimed, but on a master that is none any more.
                raise SessionForgotten
            return None

        if await wait_for(self._store, session_bell(session), look, timeout=timeout) is None:
            raise CreationFailed("OTIMEOUT", f"No orchestrator started a node within {timeout:g} s")
        await self._sessions.log(session, "PENDING")

    async def _await_node(self, session: SessionId, *, timeout: float) -> Capabilities:
        async def look() -> Capabilities | None:
            status = self._store.hgetall(grid.SESSION_STATUS(session))
            actual = self._store.hget(grid.SESSION_CAPABILITIES(session), "actual")
            if State.TERMINATED.stamp in await status:
                raise await failure_of(self._sessions, session)
            if State.PENDING.stamp not in await status:
                raise SessionForgotten
            text = await actual
            return None if text is None else read_json(text.encode())

        found = await wait_for(self._store, session_bell(session), look, timeout=timeout)
        if found is None:
            raise CreationFailed("NTIMEOUT", f"The node had no browser ready within {timeout:g} s")
        return found

    async def _hand_over(self, session: SessionId, *, took: float) -> None:
        """Makes the session its client's."""
        if not await self._sessions.move(session, State.ALIVE, code="NALIVE"):
            if await self._sessions.state(session) is State.TERMINATED:
                raise await failure_of(self._sessions, session)
            # Perhaps the slot is free again, too: so this node must go.
            raise SessionForgotten
        await self._sessions.count_startup(took)
        log.info("session created", session=session, took=round(took, 3))

    # When it goes wrong

    async def _give_up(self, session: SessionId, account: str, error: RemudaError) -> None:
        log.info("session not created", session=session, reason=error.message)
        # Without a code, another process has ended it.
        code = error.code if isinstance(error, CreationFailed) else ""
        farewell = self._say_farewell(session, account, code, message=error.message)
        await asyncio.wait([farewell], timeout=LAST_WORDS)

    def _say_farewell(self, session: SessionId, account: str, code: str, **meta: Any) -> asyncio.Task[None]:
        """Ends a session that no client waits for any more; apart, because the request's own task may be
        cancelled, and because Redis may have to come back first."""
        # Before its use ends: nothing may count it again.
        self._uses.forget(account, session)

        async def end() -> None:
            if code:
                await self._sessions.move(session, State.TERMINATED, code=code, **meta)
            # With a slot it may have a browser too: then its use ends with that (Slots.release).
            if not await self._store.exists(grid.SESSION_SLOT(session)):
                await return_use(self._store, account, session)

        async def farewell() -> None:
            await retry_until_redis_returns(end, failure="end not written down", session=session, code=code)
            self._created.add(session)

        return self._farewells.spawn(farewell(), name=f"farewell {session}")


def _name_in(request: Request) -> str:
    """The id that the new session is to have; empty if any will do."""
    return request.target.partition("?")[0].removeprefix(SESSION).strip("/")


def _span_of(request: Request, origin: Origin, agent: str) -> Span:
    """The span of a session's creation, in the client's trace if it names one."""
    parent = read_context(request.header("traceparent"), request.header("tracestate"))
    attributes = {"client.address": origin.address, "user_agent.original": agent}
    return tracer.span("create session", parent, kind=Kind.SERVER, attributes=attributes)
