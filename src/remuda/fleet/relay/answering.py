"""What a client gets for its request: an upstream's answer as it comes, or one that is made here.

Whatever it is, it is told of exactly once, and nothing of the request is left behind.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from remuda.base.errors import Broken, Lost, RemudaError, UpstreamUnavailable
from remuda.fleet.relay.body import Body
from remuda.fleet.relay.head import UNTIL_CLOSE, Request, Response
from remuda.fleet.relay.plan import Answer, Caller, Stream, TunnelLimits
from remuda.fleet.relay.rewrite import has_body, homeward, render
from remuda.fleet.relay.tunnel import Tunnel
from remuda.fleet.relay.upstream import Upstream

if TYPE_CHECKING:
    from remuda.fleet.relay.client import Client

log = logging.getLogger(__name__)

CLIENT_LEFT = 499


class Answering:
    """A request's way back to its client. What answers it, and how, is not decided here."""

    # Defaults on the class instead of slots: most requests change few of them, and setting all of them
    # for each would take 0.4 µs.
    # What is still to come of the request's body; None once all of it is here.
    body: Body | None = None
    upstream: Upstream | None = None
    _caller: Caller | None = None
    _limits = TunnelLimits()
    _task: asyncio.Task[None] | None = None
    _bytes_out = 0
    _status = 0
    _keep_alive = False
    _is_over = False
    # Memory that was taken for its body, to be given back at its end, and the account that it counts for.
    _room = 0
    _account = ""
    # What an answer is made of piece by piece, to be closed at its end, and whether the client takes more.
    stream: Stream | None = None
    _flow: asyncio.Event | None = None

    def __init__(self, client: "Client", request: Request, bytes_in: int) -> None:
        self.request = request
        self._client = client
        self._relay = client.relay
        self._bytes_in = bytes_in

    # What the upstream connection calls.

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
        if self._room:
            self._give_room_back()
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
        tunnel = Tunnel(self._relay, self.request, on_closed, self._limits)
        early = self._client.become(tunnel, upstream)
        if rest:
            self._client.transport.write(rest)
        if early:
            upstream.write(early)
        tunnel.count(len(early), len(rest))

    # The end.

    def leave(self) -> None:
        """The client is gone, and does not wait for the answer."""
        if not self._is_over:
            self._stop()
            self._tell(CLIENT_LEFT)

    @property
    def outlives_client(self) -> bool:
        """Whether it goes on if its client leaves. One that quits sends a DELETE and ends, perhaps before
        there is a connection to pass it on by: what was to be deleted, such as a session, would stay."""
        return self.request.method == "DELETE" and self.body is None and not self._status

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
        stream = answer.stream
        if stream is not None:
            self.stream = stream
            if stream.length is None and self.request.head.is_http_10:
                keep_alive = False  # Only the end of the connection tells it where the body ends.
        self.respond_more(render(answer, self.request, keep_alive=keep_alive))
        self._stop()
        if stream is not None and has_body(answer, self.request):
            # From here on it is too late for another status.
            self._status, self._keep_alive = answer.status, keep_alive
            self._spawn(self._pour(stream))
            return
        self._tell(answer.status)
        self._client.release(keep_alive=keep_alive)

    async def _pour(self, stream: Stream) -> None:
        is_chunked = stream.length is None and not self.request.head.is_http_10
        size = 0
        self._flow = asyncio.Event()
        self.hold_answer(hold=self._client.is_paused)
        async with aclosing(stream.pieces) as pieces:
            async for piece in pieces:
                size += len(piece)
                if stream.length is not None and size > stream.length:
                    break
                if piece:
                    self.respond_more(b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece)
                await self._flow.wait()
        if stream.length is not None and size != stream.length:
            raise Lost(
                f"The body of {self.request.target[:80]} does not have the length that its head declares"
            )
        if is_chunked:
            self.respond_more(b"0\r\n\r\n")
        self._tell(self._status)
        self._client.release(keep_alive=self._keep_alive and not self._relay.is_draining)

    def hold_answer(self, *, hold: bool) -> None:
        """The client takes no more for now, or again."""
        if self.upstream is not None:
            self.upstream.hold(hold=hold)
        elif self._flow is not None:
            self._flow.clear() if hold else self._flow.set()

    def _can_keep_alive(self) -> bool:
        # With a body still to come the client may or may not send it (RFC 9110 10.1.1); its bytes
        # could not be told from the next request.
        return self.request.head.keep_alive and self.body is None and not self._relay.is_draining

    def _stop(self) -> None:
        upstream, self.upstream = self.upstream, None
        if upstream is not None:
            upstream.drop()
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def _give_room_back(self) -> None:
        room, self._room = self._room, 0
        self._relay.bodies.give_back(room, account=self._account)

    def _tell(self, status: int) -> None:
        self._is_over = True
        if self._room:
            self._give_room_back()
        self._relay.observer.request_finished(self.request, status, self._bytes_in, self._bytes_out)
        self.end_call()
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.close()

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
