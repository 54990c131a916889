"""The words that the relay and its owner speak: where a request goes, and who is told about it.

Plans are Structs, not frozen dataclasses: a router makes one per request, and a frozen dataclass takes six
times as long to make (1.1 µs against 0.18).
"""

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from remuda.base.errors import RemudaError
from remuda.fleet.relay.address import Address
from remuda.fleet.relay.head import Request

Header = tuple[str, str]
Vet = Callable[[bytes], Awaitable[None]]
"""Looks at an answer; cancelled when the client leaves."""
TlsFor = Callable[[Address], ssl.SSLContext | None]
"""How to connect to an address: with TLS, or without if None. UpstreamUnavailable if that is not allowed."""


def no_cause() -> str:
    """For WebSockets that only their own sides end."""
    return ""


class TunnelLimits(NamedTuple):
    """How long a WebSocket may last, and for how long its client may be silent: seconds, 0 for ever. It also
    ends as soon as there is a `cause`, in ASCII, which is asked for about once a second."""

    lifetime: float = 0.0
    idle: float = 0.0
    cause: Callable[[], str] = no_cause


class Forward(Struct, frozen=True):
    """Relay the request to `address`.

    `target` replaces path and query, `host` the Host header. Each of `headers` is set: whatever the
    client sent under that name is removed, so that a client cannot forge an X-Forwarded-For.

    `unchunk` is for an upstream that knows neither chunks nor `Expect` nor HTTP/1.0, as ChromeDriver: a
    chunked body of at most so many bytes on the wire is collected and goes on with its length, and the relay
    says 100 itself. It needs a `target`.
    `credential` is the header line that a guarded relay asks for; it is for processes of the herd only.
    `vet` is given the body of a 200 before the client is; what it raises is the answer instead.
    A WebSocket that is over its `limits` is ended with 1001 and the reason.
    """

    address: Address
    target: str | None = None
    headers: Sequence[Header] = ()
    host: str | None = None
    unchunk: int | None = None
    credential: bytes = b""
    vet: "Vet | None" = None
    limits: TunnelLimits = TunnelLimits()


class Stream(Struct, frozen=True):
    """A body that is made while it is sent, as fast as its client takes it.

    Where its length is not known it goes out in chunks. A piece that cannot be made, or a sum that is not
    the length, breaks the connection off: nothing else could tell the client. `close` is called exactly
    once, when the last piece was sent, or as soon as no more are wanted.
    """

    pieces: AsyncGenerator[bytes, None]
    length: int | None = None
    close: Callable[[], None] = lambda: None


class Answer(Struct, frozen=True):
    """Answer here, without an upstream: with `body`, or with `stream` in its place."""

    status: int
    body: bytes = b""
    content_type: str = "application/json; charset=utf-8"
    headers: Sequence[Header] = ()
    stream: Stream | None = None


class Handle(Struct, frozen=True):
    """Collect the body (at most `max_body` bytes on the wire), then let `callback` answer.

    The callback is cancelled when the client leaves.
    """

    callback: Callable[[Request, bytes], Awaitable[Answer]]
    max_body: int = 1 << 20


class Caller(Protocol):
    """What wants a WebSocket for its client, and knows where else to ask."""

    def is_answer(self, status: int) -> bool:
        """Whether this status is meant for the client; any other but 101 is a refusal."""

    def taken(self, status: int) -> None:
        """The client has its answer, with this status, from the upstream that was dialled last."""

    async def refused(self, reason: str) -> "Dial | Answer":
        """What to do instead; cancelled when the client leaves."""

    def ended(self) -> None:
        """It is over: the client left, was answered, or its tunnel has closed. Told exactly once."""


class Dial(Struct, frozen=True):
    """Open a WebSocket as `forward` says. Who has not answered after `timeout` seconds has refused.

    The client hears nothing of a refusal: `caller` is asked what to do instead.
    """

    forward: Forward
    caller: Caller
    timeout: float
    quoted: int = 0
    """A status whose refusal is told word by word, if no upstream takes the WebSocket."""
    on_quote: Callable[[Answer], None] | None = None
    """Is given such a refusal, before the caller is asked what to do instead."""


Plan = Forward | Answer | Handle | Dial
# A plain Plan is the fast path: no task is made for a request whose route is known.
Router = Callable[[Request], Plan | Awaitable[Plan]]
RenderError = Callable[[Request | None, RemudaError], Answer]


class Guard(Protocol):
    """Knows by its credential whether a request comes from a process that may send it."""

    def admits(self, credential: bytes | None) -> bool:
        """Whether the credential is right, as far as is known."""

    def look_again(self, then: Callable[[], None]) -> None:
        """Finds out which credential is right now, and calls back."""


class Observer(Protocol):
    """Is told about every request; a started one finishes exactly once, whatever happens to it."""

    def request_started(self, request: Request) -> None: ...

    def request_finished(self, request: Request, status: int, bytes_in: int, bytes_out: int) -> None:
        """Status 499: the client left first. 101: a tunnel closed; its bytes came by `bytes_flowed`."""

    def request_refused(self, status: int, bytes_in: int, bytes_out: int) -> None:
        """Bytes that were no request were answered with `status`."""

    def bytes_flowed(self, request: Request, bytes_in: int, bytes_out: int) -> None:
        """Bytes went through the tunnel that `request` opened; told about once a second, and at its end."""


class Unobserved:
    """The observer for owners that do not look."""

    def request_started(self, request: Request) -> None: ...

    def request_finished(self, request: Request, status: int, bytes_in: int, bytes_out: int) -> None: ...

    def request_refused(self, status: int, bytes_in: int, bytes_out: int) -> None: ...

    def bytes_flowed(self, request: Request, bytes_in: int, bytes_out: int) -> None: ...


class Limits(NamedTuple):
    """How much and how long; seconds and bytes."""

    connect_timeout: float = 5.0
    # From a request's first byte to the end of its head, and between two pieces of its body.
    head_timeout: float = 30.0
    # A Selenium client holds its connection while the test thinks.
    idle_timeout: float = 300.0
    # Shorter than uvicorn's keep-alive of 5 s: the side that reuses must be the first to close.
    pool_idle: float = 4.0
    pool_size: int = 128
    # Memory for bodies that are held whole, all together, and how long a request waits for some of it.
    bodies: int = 256_000_000
    body_wait: float = 10.0
    tick: float = 1.0
