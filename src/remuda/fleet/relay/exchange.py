"""One request's life: asked of the router, forwarded, answered or handled, and told of exactly once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from remuda.base.errors import Broken, RemudaError, UpstreamUnavailable
from remuda.fleet.relay.body import Body, Counted, MalformedBody, unchunk
from remuda.fleet.relay.errors import BodyTooLarge, MalformedRequest
from remuda.fleet.relay.handshake import Handshake
from remuda.fleet.relay.head import CHUNKED, UNTIL_CLOSE, Request, Response
from remuda.fleet.relay.plan import Answer, Caller, Dial, Forward, Handle, Plan
from remuda.fleet.relay.rewrite import CONTINUE, homeward, onward, render
from remuda.fleet.relay.tunnel import Tunnel
from remuda.fleet.relay.upstream import Upstream

if TYPE_CHECKING:
    from remuda.fleet.relay.client import Client

log = logging.getLogger(__name__)

# What may wait in memory on its way; beyond it the sender is not read.
HIGH_WATER = 64 * 1024
# A body of this size is worth waiting for before an early answer: closing instead costs a connection.
SMALL_BODY = 64 * 1024
CLIENT_LEFT = 499
# RFC 9110 9.2.2: sent twice they do what they do once.
_REPEATABLE = frozenset(("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"))


class Exchange:
    """A request and what becomes of it."""

    # Defaults on the class instead of slots: most requests change few of them, and setting all of them
    # for each would take 0.4 µs.
    # What is still to come of the request's body; None once all of it is here.
    body: Body | None = None
    upstream: Upstream | None = None
    _plan: Plan | None = None
    _caller: Caller | None = None
    _task: asyncio.Task[None] | None = None
    _head = b""
    # A bytearray as soon as there is something: adding to bytes would copy a large body over and over.
    _waiting: bytes | bytearray = b""
    _bytes_out = 0
    _status = 0
    _keep_alive = False
    _is_whole = True
    _is_over = False

    def __init__(self, client: "Client", request: Request, bytes_in: int) -> None:
        self.request = request
        self._client = client
        self._relay = client.relay
        self._bytes_in = bytes_in

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
        if isinstance(self._plan, Answer | Handle):
            self._body_came(self._plan)
        return rest

    def is_congested(self) -> bool:
        """Whether the client should not be read, because its body cannot go on."""
        if self.body is None or isinstance(self._plan, Handle | Answer):
            return False
        if self.upstream is None:
            return len(self._waiting) > HIGH_WATER
        return self.upstream.is_paused

    def leave(self) -> None:
        """The client is gone, and nobody waits for the answer."""
        if not self._is_over:
            self._stop()
            self._tell(CLIENT_LEFT)

    # Plans.

    async def _follow_later(self, plan: Awaitable[Plan]) -> None:
        self._follow(await plan)

    def _follow(self, plan: Plan) -> None:
        if isinstance(plan, Forward):
            self._forward(plan)
            return
        if isinstance(plan, Dial):
            self._caller = plan.caller
            self._spawn(self._dial(plan))
            return
        self._plan = plan
        if self.body is None:
            self._body_came(plan)
        elif isinstance(plan, Answer):
            # Answering now would leave the rest of the body to be read, or the connection to be closed.
            if self._is_body_big() or self.request.header("expect"):
                self.answer(plan)
        elif max(self.request.head.length, len(self._waiting)) > plan.max_body:
            self.fail(BodyTooLarge())
        elif self.request.header("expect"):
            self.respond_more(CONTINUE)
        self._client.settle()

    def _is_body_big(self) -> bool:
        return not isinstance(self.body, Counted) or self.body.left > SMALL_BODY

    def _body_came(self, plan: Answer | Handle) -> None:
        if isinstance(plan, Handle):
            if len(self._waiting) > plan.max_body:
                self.fail(BodyTooLarge())
            elif self.body is None:
                self._spawn(self._handle(plan))
        elif self.body is None:
            self.answer(plan)

    async def _handle(self, plan: Handle) -> None:
        whole = bytes(self._waiting)
        body = unchunk(whole) if self.request.head.length == CHUNKED else whole
        self.answer(await plan.callback(self.request, body))

    def _forward(self, plan: Forward) -> None:
        self._plan = plan
        head = self.request.head
        is_plain = plan.target is None and plan.host is None and not plan.headers and not head.is_upgrade
        self._head = head.onward if is_plain else onward(self.request, plan)
        upstream = None if head.is_upgrade else self._relay.pool.take(plan.address)
        if upstream is None:
            self._spawn(self._connect(plan))
        else:
            self._send(upstream)

    async def _connect(self, plan: Forward) -> None:
        try:
            upstream = await self._relay.pool.connect(plan.address)
        except UpstreamUnavailable:
            if self.request.refused is not None:
                raise
            # Nothing was sent yet, so the router may send the request elsewhere.
            self.request.refused = plan.address
            again = self._relay.router(self.request)
            self._follow(again if isinstance(again, Plan) else await again)
            return
        self._send(upstream)

    async def _dial(self, plan: Dial) -> None:
        reason = await Handshake(self, plan).run(self._relay.pool)
        if reason is not None:
            self._follow(await plan.caller.refused(reason))

    def _send(self, upstream: Upstream) -> None:
        self.upstream = upstream
        upstream.owner = self
        if not self.request.head.length:
            upstream.transport.write(self._head)
            return
        upstream.transport.write(self._head + self._waiting)
        # Kept only for sending it again.
        self._is_whole = self.body is None
        if not self._is_whole:
            self._waiting = b""
            self._client.settle()

    def _is_repeatable(self, upstream: Upstream | None) -> bool:
        """Whether the request may go out again, since its pooled connection was closing just then."""
        is_pooled = upstream is not None and upstream.is_reused
        return is_pooled and self._is_whole and self.request.method in _REPEATABLE

    # The way back: what the upstream connection calls.

    def respond(self, response: Response, body: bytes) -> None:
        """Pass the answer's head on, and what is there of its body."""
        self._status = response.status
        keep_alive = self._keep_alive = self._can_keep_alive() and response.length != UNTIL_CLOSE
        # Frames cost more than what they do: this one is saved for nearly every answer.
        is_plain = keep_alive and not self.request.head.is_http_10
        data = (response.head if is_plain else homeward(response, self.request, keep_alive=keep_alive)) + body
        self._bytes_out += len(data)
        self._client.transport.write(data)

    def respond_more(self, data: bytes) -> None:
        """Pass on more of the answer, or a 1xx before it."""
        self._bytes_out += len(data)
        self._client.transport.write(data)

    def responded(self) -> None:
        """The answer is complete."""
        self.upstream = None
        self._is_over = True
        self._relay.observer.request_finished(self.request, self._status, self._bytes_in, self._bytes_out)
        self._client.release(keep_alive=self._keep_alive)

    def upgraded(self, response: Response, rest: bytes) -> None:
        """The upstream speaks WebSocket from here on."""
        assert self.upstream is not None
        upstream, self.upstream = self.upstream.transport, None
        self.respond_more(homeward(response, self.request, keep_alive=True))
        # Not self._tell: the tunnel would keep the exchange and all it holds in memory.
        finished = partial(
            self._relay.observer.request_finished, self.request, 101, self._bytes_in, self._bytes_out
        )
        caller, self._caller = self._caller, None
        on_closed = finished if caller is None else partial(_call_both, finished, caller.ended)
        tunnel = Tunnel(self._relay, self.request, on_closed)
        early = self._client.become(tunnel, upstream)
        if rest:
            self._client.transport.write(rest)
        if early:
            upstream.write(early)
        tunnel.count(len(early), len(rest))

    def upstream_congested(self) -> None:
        """The upstream reads slower than the client sends, or catches up."""
        self._client.settle()

    def upstream_lost(self, reason: str) -> None:
        """The upstream went away before the end of its answer."""
        upstream, self.upstream = self.upstream, None
        if self._status:
            self._break_off()
        elif self._is_repeatable(upstream) and isinstance(self._plan, Forward):
            self._spawn(self._connect(self._plan))
        elif self.request.refused is None and isinstance(self._plan, Forward):
            self._spawn(self._explain(self._plan, reason))
        else:
            self.fail(UpstreamUnavailable(reason))

    async def _explain(self, plan: Forward, reason: str) -> None:
        """Ask the router again, which may know why nobody answered: a session that has ended, say.

        Only for what it raises: the request was sent once and must not be sent again.
        """
        self.request.refused = plan.address
        again = self._relay.router(self.request)
        if not isinstance(again, Plan):
            await again
        raise UpstreamUnavailable(reason)

    # The end.

    def fail(self, error: Exception) -> None:
        """Answer with the error, in the owner's words."""
        if self._is_over:
            return
        if not isinstance(error, RemudaError):
            log.error("request failed", exc_info=error)
            error = Broken()
        if self._status:
            self._break_off()
            return
        self.answer(self._relay.answer_for(self.request, error))

    def _break_off(self) -> None:
        """It is too late for another status."""
        self._stop()
        self._tell(UpstreamUnavailable.status)
        self._client.reset()

    def answer(self, answer: Answer) -> None:
        """Answer from here."""
        keep_alive = self._can_keep_alive()
        self.respond_more(render(answer, self.request, keep_alive=keep_alive))
        self._stop()
        self._tell(answer.status)
        self._client.release(keep_alive=keep_alive)

    def _can_keep_alive(self) -> bool:
        # With a body still to come the client may or may not send it (RFC 9110 10.1.1); nobody could tell
        # its bytes from the next request.
        return self.request.head.keep_alive and self.body is None and not self._relay.is_draining

    def _stop(self) -> None:
        upstream, self.upstream = self.upstream, None
        if upstream is not None:
            upstream.drop()
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def _tell(self, status: int) -> None:
        self._is_over = True
        self._relay.observer.request_finished(self.request, status, self._bytes_in, self._bytes_out)
        self.end_call()

    def end_call(self) -> None:
        """Tell who had a WebSocket opened, if anybody, that it is over."""
        caller, self._caller = self._caller, None
        if caller is not None:
            caller.ended()

    def _spawn(self, work: Coroutine[Any, Any, None], *also: Awaitable[Any]) -> None:
        self._task = asyncio.create_task(self._guard(work), name=f"relay {self.request.target[:80]}")
        # A client may leave before the task has begun, and Python complains of what is never begun.
        self._task.add_done_callback(partial(_close, (work, *also)))

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            self.fail(error)


def _close(works: Iterable[Awaitable[Any]], _: asyncio.Task[None]) -> None:
    for work in works:
        if isinstance(work, Coroutine):
            work.close()


def _call_both(first: Callable[[], None], second: Callable[[], None]) -> None:
    first()
    second()
