"""Any cut of any valid stream gives the same bytes upstream; nothing that is not valid gets there."""

import asyncio
import itertools
import socket
from types import SimpleNamespace
from typing import cast

import httptools
from hypothesis import example, given
from hypothesis import strategies as st

from relaying import GET, OK, Witness, render_error
from remuda.fleet.relay import Address, Forward, Relay
from remuda.fleet.relay.upstream import Upstream

ADDRESS = Address("127.0.0.1", 1)


class Memory:
    """A transport that only remembers."""

    def __init__(self) -> None:
        self.written = b""
        self.is_over = False

    def write(self, data: bytes) -> None:
        assert not self.is_over
        self.written += data

    def is_closing(self) -> bool:
        return self.is_over

    def close(self) -> None:
        self.is_over = True

    abort = close

    def write_eof(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    def get_extra_info(self, name: str) -> object:
        if name == "peername":
            return ("127.0.0.1", 1)
        return SimpleNamespace(family=socket.AF_UNIX, fileno=lambda: 0)


class MemoryRelay(Relay):
    """A relay between two memories; the upstream answers each request once it is whole."""

    def __init__(self) -> None:
        self.witness = Witness()
        super().__init__(lambda request: Forward(ADDRESS), render_error, guard=None, observer=self.witness)
        self.upstreams: list[Upstream] = []
        self.outside = Memory()
        self.client = self.protocol()
        self.client.connection_made(cast(asyncio.Transport, self.outside))

    def add_upstream(self) -> None:
        upstream = Upstream(self.pool, ADDRESS)
        upstream.connection_made(cast(asyncio.Transport, Memory()))
        self.upstreams.append(upstream)
        self.pool.put(upstream)

    @property
    def inside(self) -> bytes:
        """What went upstream."""
        return b"".join(cast(Memory, upstream.transport).written for upstream in self.upstreams)

    async def feed(self, segments: list[bytes]) -> None:
        for segment in segments:
            if segment and not self.outside.is_over:
                self.client.data_received(segment)
            while await self.answer():
                pass

    async def answer(self) -> bool:
        await asyncio.sleep(0)
        for upstream in self.upstreams:
            if upstream.owner is not None and upstream.owner.body is None:
                upstream.data_received(OK)
                return True
        return False


def relay_in_memory(segments: list[bytes]) -> MemoryRelay:
    """The relay after it was fed the segments."""

    async def run() -> MemoryRelay:
        relay = MemoryRelay()
        # One connection: more would hide the order in which requests go on.
        relay.add_upstream()
        await relay.feed(segments)
        relay.close()
        relay.client.connection_lost(None)
        return relay

    return asyncio.run(run())


tokens = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=8).map(lambda name: f"x-{name}".encode())
values = st.binary(max_size=20).map(lambda raw: bytes(byte for byte in raw if 32 < byte < 127 or byte > 127))
targets = st.text("abc/?=&%.+~", max_size=20).map(lambda path: b"/" + path.encode())


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    lines = [b"%b: %b\r\n" % (draw(tokens), draw(values)) for _ in range(draw(st.integers(0, 3)))]
    head = b"%b HTTP/1.1\r\nHost: a\r\n" + b"".join(lines).replace(b"%", b"%%") + b"%b\r\n%b"
    target = draw(targets)
    body = draw(st.binary(max_size=60))
    kind = draw(st.sampled_from(["none", "counted", "chunked"]))
    if kind == "none":
        return head % (b"GET " + target, b"", b"")
    if kind == "counted":
        return head % (b"POST " + target, b"Content-Length: %d\r\n" % len(body), body)
    size = draw(st.integers(1, 30))
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    chunks = b"".join(b"%x;e=%d\r\n%b\r\n" % (len(piece), size, piece) for piece in pieces)
    trailer = b"X-Sum: 1\r\n" if size % 2 else b""
    return head % (b"PUT " + target, b"Transfer-Encoding: chunked\r\n", chunks + b"0\r\n" + trailer + b"\r\n")


def cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(at % (len(stream) + 1) for at in cuts), len(stream)]
    return [stream[begin:end] for begin, end in itertools.pairwise(edges)]


@given(st.lists(requests(), min_size=1, max_size=4), st.lists(st.integers(0, 2000), max_size=30))
def test_any_cut_of_a_valid_stream_gives_the_same_bytes_upstream(sent: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(sent)

    relay = relay_in_memory(cut(stream, cuts))

    assert relay.inside == stream
    assert relay.outside.written == OK * len(sent)
    assert [status for _, status, _, _ in relay.witness.finished] == [200] * len(sent)
    assert sum(size for _, _, size, _ in relay.witness.finished) == len(stream)


@given(st.lists(st.binary(min_size=1, max_size=80), min_size=1, max_size=5))
@example([b"\r\n\r\n"])
@example([GET[:-2], b"\n"])
def test_garbage_never_reaches_the_upstream(segments: list[bytes]) -> None:
    relay = relay_in_memory(segments)

    assert relay.inside == b""


@given(requests(), st.integers(0, 500), st.binary(max_size=3), st.integers(0, 3))
# llhttp takes no comma in the name of a chunk extension, and so must nobody before it.
@example(
    b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;,e=1\r\nx\r\n0\r\n\r\n", 0, b"", 0
)
def test_whatever_reaches_the_upstream_is_a_valid_request(
    request: bytes, at: int, put_in: bytes, taken_out: int
) -> None:
    at %= len(request)
    mutant = request[:at] + put_in + request[at + taken_out :]

    relay = relay_in_memory([mutant])

    httptools.HttpRequestParser(None).feed_data(relay.inside)
    assert len(relay.witness.finished) == len(relay.witness.started)
