"""The manager creates sessions: it answers `POST /session` and nothing else.

It writes the session down, finds it a slot, waits for the orchestrator to schedule a node and for the
node to have the browser, and answers the client. Whatever goes wrong on the way ends the session with a
log code and reaches the client at once, with the cause.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, nullcontext
from functools import partial
from typing import Any

from remuda.base import clock
from remuda.base.errors import (
    RemudaError,
    SessionExists,
    StoreUnavailable,
    Unavailable,
    UnknownMethod,
)
from remuda.base.ids import ManagerId, SessionId, is_uuid, new_id
from remuda.base.log import get_logger
from remuda.fleet.bell import wait_for
from remuda.fleet.drain import Drain
from remuda.fleet.liveness import Beat, Heart, unix_seconds
from remuda.fleet.permits import NOTHING_MORE, Allowance
from remuda.fleet.presence import present
from remuda.fleet.relay import Address, Answer, Handle, Limits, Relay, Request
from remuda.fleet.role import Role
from remuda.fleet.secret import HerdSecret
from remuda.fleet.tracing import Kind, Span, get_tracer, read_context
from remuda.grid.abandoned import Abandoned, manager_topic
from remuda.grid.admission import Admission
from remuda.grid.capabilities import Capabilities, for_client, read_request
from remuda.grid.failures import CreationFailed, failure_of
from remuda.grid.model import State
from remuda.grid.omission import LARGE, encode_request, without_options
from remuda.grid.options import labels_of
from remuda.grid.queue import Queue, line_of
from remuda.grid.sessions import Sessions, manager_beat, session_bell
from remuda.grid.sifting import check_all, with_named_browsers
from remuda.grid.timeouts import timeouts
from remuda.grid.wire import SESSION, answer_error, answer_value, read_json
from remuda.keyspace import grid
from remuda.keyspace.log_codes import BY_CODE
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
RETRY_AFTER = 1.0
BOOKS_EVERY = 1.0


class Manager(Role):
    """Creates WebDriver sessions."""

    name = "manager"

    def __init__(
        self,
        store: Store,
        *,
        host: str = "127.0.0.1",
        body_bytes: int = MAX_BODY_BYTES,
        waiting_bytes: int = MAX_WAITING_BYTES,
        allowed: Allowance = NOTHING_MORE,
    ) -> None:
        super().__init__()
        self._allowed = allowed
        self.manager_id = ManagerId(self.id)
        self._store = store
        self._host = host
        self._sessions = Sessions(store)
        self._timeouts = timeouts(store)
        self._heart = Heart(store)
        self._drain = Drain()
        self._secret = HerdSecret(store)
        self._relay = Relay(
            self._route,
            lambda _, error: answer_error(error),
            guard=self._secret,
            limits=Limits(bodies=body_bytes),
        )
        self._server: asyncio.Server | None = None
        self._queue = Queue(store)
        self._admission = Admission(store, waiting_bytes=waiting_bytes)
        self._abandoned = Abandoned(store)
        self._presence = ExitStack()
        self._port = 0
        self._created: set[SessionId] = set()
        """Sessions that it no longer creates, and that are still among those that end with it."""
        self._reading = asyncio.Lock()
        self._steps: set[asyncio.Timeout] = set()
        self._farewells: set[asyncio.Task[None]] = set()

    # Its life

    async def start(self) -> None:
        await self._secret.read()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._relay.protocol, self._host, 0)
        self._port = self._server.sockets[0].getsockname()[1]
        self.address = str(Address(self._host, self._port))
        await self._timeouts.write_defaults()
        # Before anything says that it is there: whoever reads that must find it present.
        self._presence.enter_context(present(self._store, manager_topic(self.manager_id)))
        await self._register()
        self._heart.keep(self._beat())

    async def _register(self) -> None:
        own = self.manager_id
        async with self._store.transaction() as transaction:
            transaction.sadd(grid.MANAGERS(), own)
            transaction.sadd(grid.MANAGERS_CREATING(), own)
            transaction.hset(grid.MANAGER(own), {"host": self._host, "port": self._port})
            self._beat().write(transaction)

    def _beat(self) -> Beat:
        return Beat(grid.MANAGER_HEARTBEAT(self.manager_id), ttl=HEARTBEAT_TTL, value=unix_seconds)

    async def serve(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._heart.run(), name="heart of the manager")
            tasks.create_task(self._queue.run(), name="queue of the manager")
            tasks.create_task(self._keep_books(), name="books of the manager")
            tasks.create_task(self._abandoned.run(), name="look for gone managers")
            tasks.create_task(self._admission.run(), name="look at redis' memory")

    async def drain(self) -> None:
        await self._deregister()
        self._drain.begin()
        if not await self._drain.finished(DRAIN_SHARE):
            await self._cut_short()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._cut_short()
        self._relay.close()
        if self._farewells:
            await asyncio.wait(self._farewells, timeout=LAST_WORDS)
        await self._deregister()
        await self._forget_created()
        # What it could not end itself is ended by those who find it gone.
        if not await self._store.exists(grid.MANAGER_SESSIONS(self.manager_id)):
            await self._store.srem(grid.MANAGERS_CREATING(), self.manager_id)
        self._presence.close()

    async def _cut_short(self) -> None:
        """Tells those who still wait that nobody will come."""
        self._drain.begin()
        while self._steps:
            self._steps.pop().reschedule(asyncio.get_running_loop().time())
        await self._drain.finished(LAST_WORDS)

    async def _deregister(self) -> None:
        async with self._store.transaction() as transaction:
            transaction.srem(grid.MANAGERS(), self.manager_id)
            transaction.delete(grid.MANAGER(self.manager_id))
            transaction.expire(grid.MANAGER_HEARTBEAT(self.manager_id), 1)
        self._heart.forget(self._beat())

    async def _keep_books(self) -> None:
        """Has Redis know what is true of this manager, also when it has lost it or others thought it gone."""
        while True:
            await asyncio.sleep(BOOKS_EVERY)
            try:
                await self._forget_created()
                if not await self._store.exists(grid.MANAGER(self.manager_id)):
                    await self._register()
            except Unavailable as error:
                log.warning("manager not written down", reason=error.message)

    async def _forget_created(self) -> None:
        """Takes what it has created off the list of what ends with it. Later than each is created: whoever
        finds this manager gone ends only those that nobody was given."""
        if created := tuple(self._created):
            await self._store.hdel(grid.MANAGER_SESSIONS(self.manager_id), *created)
            self._created.difference_update(created)

    # A request

    def _route(self, request: Request) -> Handle:
        if request.method != "POST":
            raise UnknownMethod(f"{request.method} is not possible here; POST creates a session")
        return Handle(self._create, MAX_BODY)

    async def _create(self, request: Request, body: bytes) -> Answer:
        with self._drain.work(), _span_of(request) as span:
            is_large = len(body) > LARGE
            # Reading takes several times the memory of a body, so one large one is read at a time.
            async with self._reading if is_large else nullcontext():
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
            await self._admission.admit(requested)
            limits = await self._timeouts.read()
            session = await self._new_session(request)
            span.set({"remuda.session.id": session})
            began = clock.monotonic()
            write_down = partial(
                self._sessions.create,
                session,
                requested=requested,
                downstream=_client_of(request),
                labels=labels,
                trace=span.context,
                manager=self.manager_id,
                line=line_of(wanted),
            )
            try:
                async with self._step("QTIMEOUT"):
                    await write_down()
                    self._heart.keep(manager_beat(session))
                    with tracer.span("wait in queue", span.context):
                        await self._queue.claim_slot(session, wanted, write_down, timeout=limits["queue"])
                async with self._step("OTIMEOUT"):
                    await self._await_scheduled(session, timeout=limits["scheduling"])
                async with self._step("NTIMEOUT"):
                    actual = await self._await_node(session, timeout=limits["nodeStartup"])
                    await self._hand_over(session, took=clock.monotonic() - began)
            except asyncio.CancelledError:
                span.fail("CLEFT", BY_CODE["CLEFT"].meaning)
                self._say_farewell(session, "CLEFT")
                raise
            except RemudaError as error:
                await self._give_up(session, error)
                raise
            finally:
                self._heart.forget(manager_beat(session))
            self._created.add(session)
            seen = for_client(actual, session=session, front_door=_front_door(request))
            return answer_value({"sessionId": session, "capabilities": seen})

    async def _new_session(self, request: Request) -> SessionId:
        """A new session's id: the one in the path, which only a gateway can ask for, or a fresh one."""
        named = request.target.partition("?")[0].removeprefix(SESSION).strip("/")
        if not named:
            return SessionId(new_id())
        session = SessionId(named)
        if not is_uuid(named) or not await self._sessions.reserve(session):
            raise SessionExists(f"There is, or was, a session {named[:50]!r}")
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
            raise CreationFailed(code, error.message) from error

    async def _await_scheduled(self, session: SessionId, *, timeout: float) -> None:
        async def look() -> bool | None:
            status = await self._store.hgetall(grid.SESSION_STATUS(session))
            if State.TERMINATED.stamp in status:
                raise await failure_of(self._sessions, session)
            return State.PENDING.stamp in status or None

        if await wait_for(self._store, session_bell(session), look, timeout=timeout) is None:
            raise CreationFailed("OTIMEOUT", f"No orchestrator started a node within {timeout:g} s")
        await self._sessions.log(session, "PENDING")

    async def _await_node(self, session: SessionId, *, timeout: float) -> Capabilities:
        async def look() -> Capabilities | None:
            status = self._store.hgetall(grid.SESSION_STATUS(session))
            actual = self._store.hget(grid.SESSION_CAPABILITIES(session), "actual")
            if State.TERMINATED.stamp in await status:
                raise await failure_of(self._sessions, session)
            text = await actual
            return None if text is None else read_json(text.encode())

        found = await wait_for(self._store, session_bell(session), look, timeout=timeout)
        if found is None:
            raise CreationFailed("NTIMEOUT", f"The node had no browser ready within {timeout:g} s")
        return found

    async def _hand_over(self, session: SessionId, *, took: float) -> None:
        """Makes the session its client's."""
        if not await self._sessions.move(session, State.ALIVE, code="NALIVE"):
            raise await failure_of(self._sessions, session)
        await self._sessions.count_startup(took)
        log.info("session created", session=session, took=round(took, 3))

    # When it goes wrong

    async def _give_up(self, session: SessionId, error: RemudaError) -> None:
        log.info("session not created", session=session, reason=error.message)
        if isinstance(error, CreationFailed):
            farewell = self._say_farewell(session, error.code, message=error.message)
            await asyncio.wait([farewell], timeout=LAST_WORDS)
        else:  # Somebody else has ended it.
            self._created.add(session)

    def _say_farewell(self, session: SessionId, code: str, **meta: Any) -> asyncio.Task[None]:
        """Ends a session that nobody waits for any more; apart, because the request's own task may be
        cancelled, and because Redis may have to come back first."""

        async def farewell() -> None:
            while True:
                try:
                    await self._sessions.move(session, State.TERMINATED, code=code, **meta)
                    self._created.add(session)
                    return
                except Unavailable as error:
                    log.warning("end not written down", session=session, code=code, reason=error.message)
                    await asyncio.sleep(RETRY_AFTER)

        task = asyncio.create_task(farewell(), name=f"farewell {session}")
        self._farewells.add(task)
        task.add_done_callback(self._farewells.discard)
        return task


def _span_of(request: Request) -> Span:
    """The span of a session's creation, in the client's trace if it names one."""
    parent = read_context(request.header("traceparent"), request.header("tracestate"))
    client = _client_of(request)
    attributes = {"client.address": client["host"], "user_agent.original": client["userAgent"]}
    return tracer.span("create session", parent, kind=Kind.SERVER, attributes=attributes)


def _front_door(request: Request) -> str:
    """Where the client sees the herd, for WebSockets."""
    scheme = "wss" if request.header("x-forwarded-proto") == "https" else "ws"
    return f"{scheme}://{request.header('x-forwarded-host') or request.header('host') or ''}"


def _client_of(request: Request) -> dict[str, Any]:
    forwarded = request.header("x-forwarded-for") or request.client
    return {"host": forwarded.split(",")[0].strip(), "userAgent": request.header("user-agent") or ""}
