"""Heads of HTTP/1.1 messages: what is valid, how long the body is, and what the connection does next.

Pure. llhttp has the last word on the header lines, so what goes on is what a real parser validated.
On its own it is too kind (checked with httptools 0.9): it takes two Hosts, no Host, HTTP/0.9 and 2.0,
RTSP, several spaces around the target, `Transfer-Encoding: gzip, chunked` and chunks in HTTP/1.0; and
it forgets `Connection: close` once the message is complete. Those are settled here.
"""

import re

import httptools

from remuda.fleet.relay.address import Address
from remuda.fleet.relay.errors import MalformedRequest, MalformedResponse

MAX_HEAD = 64 * 1024
END = b"\r\n\r\n"

# `length` of a message: bytes of the body, or one of these.
CHUNKED = -1
UNTIL_CLOSE = -2

# Origin-form only: the absolute form is for proxies, and a second host name is an invitation to smuggle.
_request_line = re.compile(rb"([A-Z-]+) (/[\x21\x22\x24-\x7e]*) HTTP/1\.([01])\r\n").match
_host = re.compile(rb"[a-z0-9.\-_~%\[\]:]+").fullmatch
_status_line = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])[ \r]").match


class Request:
    """A request whose head is valid; the body is not part of it."""

    __slots__ = (
        "client",
        "connection",
        "head",
        "is_http_10",
        "is_upgrade",
        "keep_alive",
        "length",
        "lower",
        "method",
        "refused",
        "target",
    )

    def __init__(self, head: bytes, client: str, line: re.Match[bytes]) -> None:
        method, target, minor = line.groups()
        self.head = head
        # Names are looked up in here: llhttp let no space or fold through, so `\r\nname:` is exact.
        self.lower = head.lower()
        self.client = client
        self.method = method.decode()
        self.target = target.decode()
        self.is_http_10 = minor == b"0"
        self.length = 0
        self.keep_alive = not self.is_http_10
        self.is_upgrade = False
        self.connection = b""
        # Set when this address did not take the request and the router is asked again.
        self.refused: Address | None = None

    def header(self, name: str) -> str | None:
        """The value of the header, several of them joined by commas; None when there is none."""
        value = find(self.head, self.lower, name.lower().encode())
        return None if value is None else value.decode("latin-1")


class Response:
    """The head of an upstream's answer."""

    __slots__ = ("connection", "head", "is_http_10", "keep_alive", "length", "lower", "status")

    def __init__(self, head: bytes, line: re.Match[bytes]) -> None:
        minor, status = line.groups()
        self.head = head
        self.lower = head.lower()
        self.status = int(status)
        self.is_http_10 = minor == b"0"
        self.keep_alive = not self.is_http_10
        self.length = 0
        self.connection = b""


def find(head: bytes, lower: bytes, name: bytes) -> bytes | None:
    """The value of the header `name` (lower case), several of them joined as RFC 9110 5.3 says."""
    mark = b"\r\n" + name + b":"
    at = lower.find(mark)
    if at < 0:
        return None
    values = []
    while at >= 0:
        start = at + len(mark)
        end = head.index(b"\r\n", start)
        values.append(head[start:end].strip(b" \t"))
        at = lower.find(mark, end)
    return b", ".join(values)


def tokens(value: bytes) -> set[bytes]:
    """The members of a comma-separated, lower-case list."""
    return {token.strip(b" \t") for token in value.split(b",")} - {b""}


def read_request(head: bytes, client: str) -> Request:
    """The request that `head` (up to and with its empty line) holds; raises MalformedRequest."""
    # RFC 9112 2.2: ignore an empty line before the request line.
    head = head[2:] if head.startswith(b"\r\n") else head
    line = _request_line(head)
    if line is None:
        raise MalformedRequest("The request line is not METHOD /path HTTP/1.1.")
    try:
        httptools.HttpRequestParser(None).feed_data(head)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError as error:
        raise MalformedRequest(f"The request head is malformed: {error}.") from error
    request = Request(head, client, line)
    _check_host(request)
    _frame_request(request)
    _connect_request(request)
    return request


def _check_host(request: Request) -> None:
    host = find(request.lower, request.lower, b"host")
    if host is None and not request.is_http_10:
        raise MalformedRequest("The request has no Host header.")
    # Two Hosts come joined by a comma, which none may hold.
    if host and not _host(host):
        raise MalformedRequest("The request has more than one Host header, or one that names no host.")


def _frame_request(request: Request) -> None:
    request.length = _length(request.head, request.lower, default=0, error=MalformedRequest)
    if request.length == CHUNKED and request.is_http_10:
        raise MalformedRequest("HTTP/1.0 knows no Transfer-Encoding.")


def _length(head: bytes, lower: bytes, *, default: int, error: type[Exception]) -> int:
    coding = find(head, lower, b"transfer-encoding")
    count = find(head, lower, b"content-length")
    if coding is not None:
        # RFC 9112 6.1: both lengths are an attack or a bug; anything but chunked cannot be framed.
        if count is not None or coding.lower() != b"chunked":
            raise error("The Transfer-Encoding is not just chunked, or comes with a Content-Length.")
        return CHUNKED
    if count is None:
        return default
    if not count.isdigit() or len(count) > 18:
        raise error("The Content-Length is not one number.")
    return int(count)


def _connect_request(request: Request) -> None:
    connection = find(request.lower, request.lower, b"connection")
    if connection is None:
        return
    request.connection = connection
    listed = tokens(connection)
    if b"close" in listed:
        request.keep_alive = False
    elif b"keep-alive" in listed:
        request.keep_alive = True
    # Only WebSocket: an `Upgrade: h2c`, which Java clients send with ordinary requests, is dropped.
    if b"upgrade" in listed and find(request.lower, request.lower, b"upgrade") == b"websocket":
        if request.method != "GET" or request.length or request.is_http_10:
            raise MalformedRequest("A WebSocket starts with a GET without a body.")
        request.is_upgrade = True


def read_response(head: bytes, method: str) -> Response:
    """The response to a request with `method` that `head` holds; raises MalformedResponse."""
    line = _status_line(head)
    if line is None:
        raise MalformedResponse("no HTTP/1.1 status line")
    try:
        httptools.HttpResponseParser(None).feed_data(head)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError as error:
        raise MalformedResponse(str(error)) from error
    response = Response(head, line)
    response.length = _response_length(response, method)
    connection = find(response.lower, response.lower, b"connection")
    if connection is not None:
        response.connection = connection
        listed = tokens(connection)
        response.keep_alive = b"close" not in listed and (response.keep_alive or b"keep-alive" in listed)
    return response


def _response_length(response: Response, method: str) -> int:
    # Checked before the exceptions below, so that a broken length is refused even where it is not used.
    length = _length(response.head, response.lower, default=UNTIL_CLOSE, error=MalformedResponse)
    # RFC 9112 6.3: these end with their head, whatever length they claim.
    if method == "HEAD" or response.status < 200 or response.status in (204, 304):
        return 0
    return length
