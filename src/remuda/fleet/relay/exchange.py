"""What is done with a request: asked of the router, then forwarded, answered, handled or dialled."""

import asyncio
import logging
from collections.abc import Awaitable, Coroutine

from remuda.base.errors import Overloaded, UpstreamLost, UpstreamUnavailable, UpstreamUntrusted
from remuda.fleet.relay.address import Address
from remuda.fleet.relay.answering import Answering
from remuda.fleet.relay.bodies import SMALL
from remuda.fleet.relay.body import Counted, MalformedBody, unchunk
from remuda.fleet.relay.errors import BodyTooLarge, MalformedRequest
from remuda.fleet.relay.handshake import Handshake
from remuda.fleet.relay.head import CHUNKED, Response
from remuda.fleet.relay.plan import Answer, Dial, Forward, Handle, Plan, Vet
from remuda.fleet.relay.rewrite import CONTINUE, onward, unchunked
from remuda.fleet.relay.upstream import Upstream
from remuda.fleet.relay.vetting import Vetting

log = logging.getLogger(__name__)

# What may wait in memory on its way; beyond it the sender is not read.
HIGH_WATER = 64 * 1024
# A body of this size is worth waiting for before an early answer: closing instead costs a connection.
SMALL_BODY = 64 * 1024
# By so much the room for a chunked body grows.
STEP = 1 << 20
# A router that always knows one more must not keep a client for ever.
MOST_REFUSALS = 20
NO_ROOM = (
    "The bodies of other requests take all memory that is set aside for them, or all of it that is for one "
    "account (body_megabytes)."
)
# RFC 9110 9.2.2: sent twice they do what they do once.
_REPEATABLE = frozenset(("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"))


class Exchange(Answering):
    """A request and what becomes of it."""

    _plan: Plan | None = None
    _head = b""
    # A bytearray as soon as there is something: adding to bytes would copy a large body over and over.
    _waiting: bytes | bytearray = b""
    _is_whole = True
    # Whether all of the body is awaited before anything is done with the plan.
    _is_collecting = False
    _is_unchunked = False
    _is_in_line = False
    # Upstreams that could not be reached, and those that could not be verified.
    _refusals = 0
    _untrusted: tuple[Address, ...] = ()

    # The way in: from the client to a plan.

    def start(self) -> None:
        """Ask the router and do what it says."""
        try:
            plan = self._relay.router(self.request)
            if isinstance(plan, Forward):
                self._forward(plan)
            elif isinstance(plan, Answer | Handle | Dial):
                self._follow(plan)
            else:
                self._spawn(self._follow_later(plan), plan)
        except Exception as error:
            self.fail(error)

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the body; returns what comes after its end."""
        assert self.body is not None
        try:
            passed, rest = self.body.feed(data)
        except MalformedBody as error:
            self.fail(MalformedRequest(str(error)))
            return b""
        if self.body.done:
            self.body = None
        self._bytes_in += len(passed)
        if self.upstream is not None:
            self.upstream.transport.write(passed)
        elif not isinstance(self._plan, Answer):
            self._waiting = self._waiting or bytearray()
            self._waiting += passed
        if self._is_collecting:
            self._body_came()
        return rest

    def is_congested(self) -> bool:
        """Whether the client should not be read, because its body cannot go on."""
        if self.body is None:
            return False
        if self._is_collecting:
            return self._is_in_line
        if self.upstream is None:
            return len(self._waiting) > HIGH_WATER
        return self.upstream.is_paused

    # Plans.

    async def _follow_later(self, plan: Awaitable[Plan]) -> None:
        self._follow(await plan)

    def _follow(self, plan: Plan) -> None:
        if isinstance(plan, Forward):
            self._forward(plan)
            return
        if isinstance(plan, Dial):
            self._caller, self._limits = plan.caller, plan.forward.limits
            self._spawn(self._dial(plan))
            return
        self._plan = plan
        self._is_collecting = True
        if self.body is None:
            self._body_came()
        elif isinstance(plan, Answer):
            self.stream = plan.stream
            # Answering now would leave the rest of the body to be read, or the connection to be closed.
            if self._is_body_big() or self.request.head.expects:
                self.answer(plan)
        else:
            self._collect(plan.max_body)

    def _is_body_big(self) -> bool:
        return not isinstance(self.body, Counted) or self.body.left > SMALL_BODY

    def _collect(self, max_body: int) -> None:
        self._is_collecting = True
        length = self.request.head.length
        if max(length, len(self._waiting)) > max_body:
            self.fail(BodyTooLarge())
        elif self._take_room(length if length != CHUNKED else max(len(self._waiting), STEP)):
            self._call_for_body()

    def _take_room(self, size: int) -> bool:
        """Whether there is room for the body; else it waits for some."""
        self._account = self._relay.account_of(self.request)
        if self._relay.bodies.take(size, account=self._account):
            self._room = size
            return True
        self._is_in_line = True
        self._client.settle()
        self._spawn(self._wait_for_room(size))
        return False

    async def _wait_for_room(self, size: int) -> None:
        try:
            async with asyncio.timeout(self._relay.limits.body_wait):
                await self._relay.bodies.wait(size, account=self._account)
        except TimeoutError:
            raise Overloaded(NO_ROOM) from None
        self._room = size
        self._is_in_line = False
        if self.body is None:
            self._body_came()
        else:
            self._call_for_body()

    def _call_for_body(self) -> None:
        if self.request.head.expects:
            self.respond_more(CONTINUE)
        self._client.settle()

    def _body_came(self) -> None:
        """More of a body that is collected is here, perhaps the rest of it."""
        plan = self._plan
        if isinstance(plan, Answer):
            if self.body is None:
                self.answer(plan)
            return
        assert isinstance(plan, Handle | Forward)
        max_body = plan.max_body if isinstance(plan, Handle) else plan.unchunk
        size = len(self._waiting)
        if max_body is not None and size > max_body:
            self.fail(BodyTooLarge())
            return
        if self._is_in_line or (size > self._room and not self._grow_room(size)):
            return
        if self.body is None:
            self._is_collecting = False
            self._shrink_room(size)
            if isinstance(plan, Handle):
                self._spawn(self._handle(plan))
            else:
                self._forward(plan)

    def _grow_room(self, size: int) -> bool:
        """Whether there is room for what has come. How many chunks follow is not known, so more is taken than
        is needed. A part of a body does not wait for more: others that do the same could wait for its end."""
        if not self._room:
            return self._take_room(size)
        more = size - self._room if self.body is None else max(size - self._room, STEP)
        if self._relay.bodies.take(more, account=self._account, own=self._room):
            self._room += more
            return True
        self.fail(Overloaded(NO_ROOM))
        return False

    def _shrink_room(self, size: int) -> None:
        """Give back what was taken for chunks and a small body does not need: it may be held for long."""
        room = self._room
        if size <= SMALL < room and self._relay.bodies.take(size, account=self._account):
            self._room = size
            self._relay.bodies.give_back(room, account=self._account)

    async def _handle(self, plan: Handle) -> None:
        whole, self._waiting = self._waiting, b""
        body = unchunk(whole) if self.request.head.length == CHUNKED else bytes(whole)
        answer = plan.callback(self.request, body)
        # Held here, a large body would stay in memory until its session has a browser.
        del whole, body
        self.answer(await answer)

    def _forward(self, plan: Forward) -> None:
        self._plan = plan
        head = self.request.head
        if plan.unchunk is not None and (head.length == CHUNKED or head.expects):
            if not self._forward_plainly(plan, plan.unchunk):
                return
        elif plan.target is None and plan.host is None and not plan.headers and not head.is_upgrade:
            # As `onward` does it: every command comes this way, and its frames would cost 0.3 µs.
            self._head = head.onward[:-2] + plan.credential + b"\r\n" if plan.credential else head.onward
        else:
            self._head = onward(self.request, plan)
        upstream = None if head.is_upgrade else self._relay.pool.take(plan.address)
        if upstream is None:
            self._spawn(self._connect(plan))
        else:
            self._send(upstream)

    def _forward_plainly(self, plan: Forward, max_body: int) -> bool:
        """Whether a request with chunks or `Expect` can go to an upstream that knows neither; else it waits
        for the rest of its body."""
        length = self.request.head.length
        if length == CHUNKED:
            if self.body is not None:
                self._collect(max_body)
                return False
            if not self._is_unchunked:
                self._waiting, self._is_unchunked = unchunk(bytes(self._waiting)), True
            length = len(self._waiting)
        elif self.body is not None:
            self.respond_more(CONTINUE)
        self._head = unchunked(self.request, plan, length=length)
        return True

    async def _connect(self, plan: Forward) -> None:
        self._limits = plan.limits
        try:
            upstream = await self._relay.pool.connect(plan.address)
        except UpstreamUntrusted:
            # Another may be tried, as nothing was sent yet, but none is waited for: the router is not told of
            # this one as of one that has ended.
            self._untrusted = (*self._untrusted, plan.address)
            known = self._relay.router(self.request)
            if not isinstance(known, Forward) or known.address in self._untrusted:
                if isinstance(known, Coroutine):
                    known.close()
                raise
            self._follow(known)
            return
        except UpstreamUnavailable as error:
            self._refusals += 1
            if plan.address == self.request.refused or self._refusals == MOST_REFUSALS:
                raise
            # Nothing was sent yet, so the router may send the request elsewhere. As often as it knows one:
            # several processes that were killed may have left their addresses.
            self.request.refused = plan.address
            try:
                again = self._relay.router(self.request)
                other = again if isinstance(again, Plan) else await again
            except UpstreamUnavailable as missing:
                # The reason that the last one gave: there may be many that run and cannot be reached.
                raise UpstreamUnavailable(
                    f"{missing.message}. The last one tried: {error.message}"
                ) from error
            self._follow(other)
            return
        self._send(upstream)

    async def _dial(self, plan: Dial) -> None:
        reason = await Handshake(self, plan).run(self._relay.pool)
        if reason is not None:
            self._follow(await plan.caller.refused(reason))

    def _send(self, upstream: Upstream) -> None:
        self.upstream = upstream
        vet = self._plan.vet if isinstance(self._plan, Forward) else None
        upstream.owner = Vetting(self, vet) if vet is not None else self
        if not self.request.head.length:
            upstream.transport.write(self._head)
            return
        upstream.transport.write(self._head + self._waiting)
        # Kept only for sending it again.
        self._is_whole = self.body is None
        if not self._is_whole:
            self._waiting = b""
            self._client.settle()

    def vet(self, response: Response, body: bytes, look: Vet) -> None:
        """Pass a whole answer on once it has been looked at."""
        self.upstream = None
        self._spawn(self._vet(response, body, look))

    async def _vet(self, response: Response, body: bytes, look: Vet) -> None:
        await look(body)
        self.respond(response, body)
        self.responded()

    # When the upstream does not do its part.

    def upstream_congested(self) -> None:
        """The upstream reads slower than the client sends, or catches up."""
        self._client.settle()

    def upstream_lost(self, reason: str) -> None:
        """The upstream went away before the end of its answer."""
        upstream, self.upstream = self.upstream, None
        # For operators. Clients are not told internal addresses.
        log.info("%s", reason)
        if self._status:
            self._break_off()
        elif self._is_repeatable(upstream) and isinstance(self._plan, Forward):
            self._spawn(self._connect(self._plan))
        elif self.request.refused is None and isinstance(self._plan, Forward):
            self._spawn(self._explain(self._plan))
        else:
            self.fail(UpstreamLost())

    def _is_repeatable(self, upstream: Upstream | None) -> bool:
        """Whether the request may go out again, since its pooled connection was closing just then."""
        is_pooled = upstream is not None and upstream.is_reused
        return is_pooled and self._is_whole and self.request.method in _REPEATABLE

    async def _explain(self, plan: Forward) -> None:
        """Ask the router again, which may know why there was no answer: a session that has ended, say.

        Only for what it raises: the request was sent once and must not be sent again.
        """
        self.request.refused, self.request.was_sent = plan.address, True
        again = self._relay.router(self.request)
        if not isinstance(again, Plan):
            await again
        raise UpstreamLost
