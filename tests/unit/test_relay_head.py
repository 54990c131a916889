"""Which heads are let through, and what is read from them."""

import pytest

from remuda.fleet.relay import Address, Answer, Forward, Request
from remuda.fleet.relay.errors import MalformedRequest, MalformedResponse, UnsupportedWebSocket
from remuda.fleet.relay.head import CHUNKED, UNTIL_CLOSE, read_head, read_response
from remuda.fleet.relay.rewrite import homeward, onward, render

ADDRESS = Address("127.0.0.1", 1)
START = b"POST /a HTTP/1.1\r\nHost: a\r\n"
UPGRADE = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
KEY = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
HANDSHAKE = b"Sec-WebSocket-Version: 13\r\n" + KEY
HOSTILE = {
    "both lengths": START + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
    "both lengths the other way": START + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
    "differing lengths": START + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n",
    "the same length twice": START + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\n",
    "a list of lengths": START + b"Content-Length: 3, 3\r\n\r\n",
    "a signed length": START + b"Content-Length: +3\r\n\r\n",
    "a negative length": START + b"Content-Length: -3\r\n\r\n",
    "a hexadecimal length": START + b"Content-Length: 0x3\r\n\r\n",
    "an empty length": START + b"Content-Length:\r\n\r\n",
    "an endless length": START + b"Content-Length: 99999999999999999999\r\n\r\n",
    "another coding": START + b"Transfer-Encoding: gzip\r\n\r\n",
    "two codings": START + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    "chunked twice": START + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
    "chunked and identity": START + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n",
    "a coding behind a vertical tab": START + b"Transfer-Encoding:\x0bchunked\r\n\r\n",
    "a coding that only ends in chunked": START + b"Transfer-Encoding: xchunked\r\n\r\n",
    "chunks in HTTP/1.0": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "two hosts": START + b"Host: b\r\n\r\n",
    "the same host twice": START + b"Host: a\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\nA: b\r\n\r\n",
    "a list of hosts": b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
    "a host with a path": b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "a host that is not ASCII": b"GET / HTTP/1.1\r\nHost: \xe4\r\n\r\n",
    "a bare LF after a header": START + b"A: b\nC: d\r\n\r\n",
    "a bare LF after the request line": b"GET / HTTP/1.1\nHost: a\r\n\r\n",
    "a bare CR in a header": START + b"A: b\rC: d\r\n\r\n",
    "a folded line": START + b"A: b\r\n c\r\n\r\n",
    "a fold before the first header": b"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
    "a space before the colon": START + b"Content-Length : 3\r\n\r\n",
    "a tab before the colon": START + b"Content-Length\t: 3\r\n\r\n",
    "a space in a name": START + b"A b: c\r\n\r\n",
    "no colon": START + b"A\r\n\r\n",
    "no name": START + b": b\r\n\r\n",
    "NUL in a value": START + b"A: b\0c\r\n\r\n",
    "a control character in a value": START + b"A: b\x01c\r\n\r\n",
    "a control character in a name": START + b"A\x01: b\r\n\r\n",
    "a control character in the target": b"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n",
    "DEL in the target": b"GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n",
    "a tab in the target": b"GET /\ta HTTP/1.1\r\nHost: a\r\n\r\n",
    "a target that is not ASCII": b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
    "a fragment in the target": b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n",
    "a target for a proxy": b"GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "a tunnel through a proxy": b"CONNECT b:1 HTTP/1.1\r\nHost: a\r\n\r\n",
    "an asterisk": b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
    "two spaces before the target": b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
    "two spaces after the target": b"GET /  HTTP/1.1\r\nHost: a\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/1.2": b"GET / HTTP/1.2\r\nHost: a\r\n\r\n",
    "HTTP/2.0": b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
    "HTTP/2 with prior knowledge": b"PRI * HTTP/2.0\r\n\r\n",
    "a made-up method": b"FOO / HTTP/1.1\r\nHost: a\r\n\r\n",
    "a method in lower case": b"get / HTTP/1.1\r\nHost: a\r\n\r\n",
    "RTSP": b"DESCRIBE / RTSP/1.0\r\nHost: a\r\n\r\n",
    "an upgrade with a body": UPGRADE + HANDSHAKE + b"Content-Length: 3\r\n\r\n",
    "an upgrade by POST": UPGRADE.replace(b"GET", b"POST") + HANDSHAKE + b"\r\n",
    "an upgrade of HTTP/1.0": UPGRADE.replace(b"1.1", b"1.0") + HANDSHAKE + b"\r\n",
    "an upgrade without a key": UPGRADE + b"Sec-WebSocket-Version: 13\r\n\r\n",
    "an upgrade with two keys": UPGRADE + HANDSHAKE + KEY + b"\r\n",
    **{
        f"an upgrade with the key {key.decode()!r}": UPGRADE
        + b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %b\r\n\r\n" % key
        for key in (b"", b"short==", b"dGhlIHNhbXBsZSBub25jZQ", b"dGhlIHNhbXBsZSBub25jZQ==A", b"A" * 24)
    },
    "two empty lines": b"\r\n\r\n",
}


def request(raw: bytes) -> Request:
    head = read_head(raw)
    return Request(head, head.method, head.target, "127.0.0.1")


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_head_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedRequest):
        read_head(raw)


@pytest.mark.parametrize(
    "version", [b"", b"Sec-WebSocket-Version: 8\r\n", b"Sec-WebSocket-Version: 13, 8\r\n"]
)
def test_a_websocket_of_another_version_hears_which_one_is_spoken(version: bytes) -> None:
    with pytest.raises(UnsupportedWebSocket) as caught:
        read_head(UPGRADE + KEY + version + b"\r\n")

    assert caught.value.status == 426
    assert caught.value.headers()["Sec-WebSocket-Version"] == "13"


def test_a_long_hostile_head_is_refused_without_being_remembered() -> None:
    with pytest.raises(MalformedRequest):
        read_head(START + b"Filler: " + b"f" * 5000 + b"\r\nHost: b\r\n\r\n")


def test_a_head_tells_method_target_and_length() -> None:
    read = read_head(b"PUT /a?b=c HTTP/1.1\r\nHost: a:1\r\ncontent-LENGTH: 12 \r\n\r\n")

    assert (read.method, read.target, read.length, read.keep_alive) == ("PUT", "/a?b=c", 12, True)


def test_an_empty_line_before_the_request_is_ignored() -> None:
    assert read_head(b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n").target == "/"


def test_a_chunked_head_is_recognised() -> None:
    assert read_head(START + b"Transfer-Encoding: Chunked\r\n\r\n").length == CHUNKED


@pytest.mark.parametrize(
    ("version", "connection", "keep_alive"),
    [
        (b"1.1", b"", True),
        (b"1.1", b"Connection: close\r\n", False),
        (b"1.1", b"Connection: foo, Close\r\n", False),
        (b"1.1", b"Connection: foo\r\nConnection: close\r\n", False),
        (b"1.1", b"Connection: keep-alive, close\r\n", False),
        (b"1.0", b"", False),
        (b"1.0", b"Connection: Keep-Alive\r\n", True),
    ],
)
def test_keep_alive_follows_version_and_connection(
    version: bytes, connection: bytes, *, keep_alive: bool
) -> None:
    assert read_head(b"GET / HTTP/%b\r\nHost: a\r\n%b\r\n" % (version, connection)).keep_alive is keep_alive


def test_headers_are_found_whatever_their_case_and_joined_when_repeated() -> None:
    asked = request(b"GET / HTTP/1.1\r\nHost: a\r\nX-One: 1\r\nx-one:\t2 \r\n\r\n")

    assert asked.header("X-ONE") == "1, 2"
    assert asked.header("x-two") is None


def test_only_a_websocket_upgrade_is_one() -> None:
    upgrade = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: %b\r\n%b\r\n"

    assert request(upgrade % (b"WebSocket", HANDSHAKE)).is_upgrade
    assert not request(upgrade % (b"h2c", b"")).is_upgrade


def test_a_plain_head_goes_on_as_it_came() -> None:
    raw = b"GET /a HTTP/1.1\r\nhOST: a\r\nX:  y \r\n\r\n"

    assert onward(request(raw), Forward(ADDRESS)) == raw


def test_hop_by_hop_lines_end_here() -> None:
    raw = START + b"Connection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nX-End: 2\r\n\r\n"

    assert onward(request(raw), Forward(ADDRESS)) == START + b"X-End: 2\r\n\r\n"


def test_naming_the_length_in_connection_does_not_remove_it() -> None:
    raw = START + b"Content-Length: 3\r\nConnection: content-length, host, transfer-encoding\r\n\r\n"

    assert onward(request(raw), Forward(ADDRESS)) == START + b"Content-Length: 3\r\n\r\n"


def test_a_header_of_the_plan_replaces_the_clients() -> None:
    raw = START + b"x-forwarded-for: forged\r\nX-Forwarded-For: again\r\n\r\n"
    plan = Forward(ADDRESS, headers=[("X-Forwarded-For", "1.2.3.4")])

    assert onward(request(raw), plan) == START + b"X-Forwarded-For: 1.2.3.4\r\n\r\n"


def test_target_and_host_can_be_swapped() -> None:
    plan = Forward(ADDRESS, target="/b?c", host="localhost:1")

    assert onward(request(START + b"X: y\r\n\r\n"), plan) == (
        b"POST /b?c HTTP/1.1\r\nX: y\r\nHost: localhost:1\r\n\r\n"
    )


def test_a_plan_cannot_smuggle_a_line() -> None:
    with pytest.raises(ValueError, match="cannot be part of an HTTP head"):
        onward(request(START + b"\r\n"), Forward(ADDRESS, headers=[("X", "a\r\nY: b")]))


@pytest.mark.parametrize(
    ("raw", "length", "keep_alive"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 5, True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n", CHUNKED, False),
        (b"HTTP/1.1 200 OK\r\n\r\n", UNTIL_CLOSE, True),
        (b"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\n", 1, True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 0, True),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 0, True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", 5, False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n", 5, True),
    ],
)
def test_a_response_tells_how_it_ends(raw: bytes, length: int, *, keep_alive: bool) -> None:
    response = read_response(raw)

    assert (response.length, response.keep_alive) == (length, keep_alive)


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        b"HTTP/1.1 999 OK\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n\r\n",
    ],
)
def test_a_malformed_response_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedResponse):
        read_response(raw)


def test_a_response_goes_home_in_our_version_and_with_our_connection() -> None:
    response = read_response(b"HTTP/1.0 200 OK\r\nKeep-Alive: 5\r\nConnection: keep-alive\r\nX: y\r\n\r\n")
    asked = request(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")

    assert homeward(response, asked, keep_alive=True) == b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n"
    assert homeward(response, asked, keep_alive=False).endswith(b"X: y\r\nConnection: close\r\n\r\n")


def test_an_answer_to_head_keeps_its_length_but_not_its_body() -> None:
    asked = request(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")

    answer = render(Answer(200, b"body"), asked, keep_alive=True)

    assert b"Content-Length: 4\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")
