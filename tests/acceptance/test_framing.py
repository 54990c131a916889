"""However a client frames the body of a request, the session and its browser get the same one."""

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from herds import DEADLINE, Herd

# In one process, so that only one browser has to start for them.
pytestmark = pytest.mark.xdist_group("framing")

WANTED = {"capabilities": {"alwaysMatch": {"browserName": "chrome"}}}
SCRIPT = {"script": "return arguments[0].length", "args": ["x" * 200_000]}
HEAD = "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{framing}\r\n"


class Raw:
    """A connection that sends what it is told, byte for byte."""

    def __init__(self, herd: Herd) -> None:
        self.host = urlsplit(herd.url).netloc
        name, _, port = self.host.rpartition(":")
        self.socket = socket.create_connection((name, int(port)), timeout=DEADLINE)

    def post(self, path: str, framing: str, body: bytes = b"") -> None:
        head = HEAD.format(path=path, host=self.host, framing=framing)
        self.socket.sendall(head.encode() + body)

    def answer(self) -> tuple[int, Any]:
        response = http.client.HTTPResponse(self.socket)
        response.begin()
        return response.status, json.loads(response.read())["value"]


def in_chunks(content: Any, *, extension: bytes = b"", trailer: bytes = b"") -> bytes:
    """The JSON of `content` in three chunks."""
    text = json.dumps(content).encode()
    third = len(text) // 3 + 1
    parts = [text[at : at + third] for at in range(0, len(text), third)]
    chunks = [b"%x%b\r\n%b\r\n" % (len(part), extension, part) for part in parts]
    return b"".join(chunks) + b"0%b\r\n%b\r\n" % (extension, trailer)


@pytest.fixture(scope="module")
def session(herd: Herd) -> Iterator[str]:
    """A session that was asked for in chunks."""
    raw = Raw(herd)
    raw.post("/session", "Transfer-Encoding: chunked\r\n", in_chunks(WANTED, extension=b";part=1"))
    status, created = raw.answer()
    assert status == 200, created
    yield f"/session/{created['sessionId']}"
    herd.request("DELETE", f"/session/{created['sessionId']}")


@pytest.mark.parametrize(
    ("extension", "trailer"), [(b"", b""), (b';a=b;c="d"', b""), (b"", b"X-Checksum: 12\r\nX-More: 3\r\n")]
)
def test_a_chunked_command_reaches_the_driver(
    herd: Herd, session: str, extension: bytes, trailer: bytes
) -> None:
    raw = Raw(herd)

    for _ in range(2):  # On the same connection: nothing of the first is left over.
        body = in_chunks(SCRIPT, extension=extension, trailer=trailer)
        raw.post(f"{session}/execute/sync", "Transfer-Encoding: chunked\r\n", body)

        assert raw.answer() == (200, 200_000)


def test_a_chunked_command_may_come_in_pieces(herd: Herd, session: str) -> None:
    raw, body = Raw(herd), in_chunks({"script": "return 7", "args": []})

    raw.post(f"{session}/execute/sync", "Transfer-Encoding: chunked\r\n")
    for at in range(len(body)):
        raw.socket.sendall(body[at : at + 1])

    assert raw.answer() == (200, 7)


def test_a_command_of_http_1_0_reaches_the_driver(herd: Herd, session: str) -> None:
    raw, body = Raw(herd), json.dumps(SCRIPT).encode()
    head = HEAD.replace("HTTP/1.1", "HTTP/1.0").format(
        path=f"{session}/execute/sync", host=raw.host, framing=f"Content-Length: {len(body)}\r\n"
    )

    raw.socket.sendall(head.encode() + body)

    assert raw.answer() == (200, 200_000)
    assert raw.socket.recv(1) == b""


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_client_that_expects_100_gets_it_at_once(herd: Herd, session: str, *, is_chunked: bool) -> None:
    raw = Raw(herd)
    body = in_chunks(SCRIPT) if is_chunked else json.dumps(SCRIPT).encode()
    framing = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {len(body)}"

    raw.post(f"{session}/execute/sync", f"{framing}\r\nExpect: 100-continue\r\n")
    interim = raw.socket.recv(65536)
    raw.socket.sendall(body)

    assert interim == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert raw.answer() == (200, 200_000)
