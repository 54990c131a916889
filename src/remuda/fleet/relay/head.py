"""Heads of HTTP/1.1 messages: what is valid, how long the body is, and what the connection does next.

Pure. Nothing goes on that llhttp has not validated. On its own it is too kind (checked with httptools 0.9):
it takes two Hosts, no Host, HTTP/0.9 and 2.0, RTSP, several spaces around the target and
`Transfer-Encoding: gzip, chunked`; and it forgets `Connection: close` once the message is complete. Those are
settled here.

What a client shows of who it is (a token, a ticket, a cookie) is taken off here, before anything else sees
the head. Neither the target nor the lines that go on have it, so no log, error or upstream can.

A client sends the same lines again and again, and so does a server within a second, so what is known about
them is remembered by their bytes: that takes 0.2 µs where parsing takes 6.
"""

import base64
import binascii
import re
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote

import httptools
import msgspec

from remuda.fleet.relay.address import Address
from remuda.fleet.relay.errors import (
    WEBSOCKET_VERSION,
    MalformedRequest,
    MalformedResponse,
    UnsupportedWebSocket,
)

MAX_HEAD = 64 * 1024
END = b"\r\n\r\n"

# `length` of a message: bytes of the body, or one of these.
CHUNKED = -1
UNTIL_CLOSE = -2

# Together at most 4 MB: a client that varies its headers must not fill the memory.
MEMORABLE = 2048
_REMEMBERED = 512

# Origin-form only: the absolute form is for proxies, and a second host name is an invitation to smuggle.
_request_line = re.compile(
    rb"(GET|POST|DELETE|PUT|HEAD|OPTIONS|PATCH) (/[\x21\x22\x24-\x7e]*) HTTP/1\.([01])"
).fullmatch
_status_line = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: [\t\x20-\x7e\x80-\xff]*)?\r\n").match
# Base64 of 16 bytes (RFC 6455 4.1). Two such headers come joined by a comma, which does not match.
_websocket_key = re.compile(rb"[A-Za-z0-9+/]{22}==").fullmatch
_host = re.compile(rb"[a-z0-9.\-_~%\[\]:]*").fullmatch

# RFC 9110 7.6.1. What is named in Connection ends at this hop as well.
_CONNECTION = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"te", b"upgrade"))
# Shown by one process of the herd to another. It ends at each hop: what a client sends under this name goes
# nowhere, and no driver or browser ever sees the herd's own.
CREDENTIAL_HEADER = "X-Remuda-Secret"
_CREDENTIAL = CREDENTIAL_HEADER.lower().encode()
_HOP_BY_HOP = _CONNECTION | {_CREDENTIAL}
# What a client says of itself, or a proxy of its client. It ends at each hop too: the next one gets what this
# one has found out, in headers of its plan.
_personal = re.compile(
    rb"\r\n(authorization|proxy-authorization|cookie|forwarded|x-real-ip|x-forwarded-[^:\r]*|x-remuda-[^:\r]*):"
).findall
LOGIN_COOKIE = "remuda_login"
# Over TLS. Browsers let no other host of the same domain set a cookie of this name (RFC 6265bis 4.1.3.2), so
# a client cannot be made to work in another's account.
SECURE_LOGIN_COOKIE = f"__Host-{LOGIN_COOKIE}"
TOKEN_QUERY = "token"
TICKET_QUERY = "ticket"
_SHOWN = frozenset((TOKEN_QUERY, TICKET_QUERY))
# Naming one of these must not make it disappear: the next parser would frame the message differently.
_KEPT = frozenset((b"content-length", b"transfer-encoding", b"host"))


class Shown(NamedTuple):
    """What a client shows of who it is; empty what it does not show."""

    token: str = ""
    """Of the Authorization header, or else of the query."""
    ticket: str = ""
    cookie: str = ""


NOTHING_SHOWN = Shown()


class Fields:
    """The header lines of a message, from the line break before the first to the empty line."""

    __slots__ = ("_values", "block", "connection", "credential", "length", "lower", "onward")

    def __init__(
        self, block: bytes, *, length: int, error: type[Exception], is_request: bool = False
    ) -> None:
        self.block = block
        # Names are looked up in here: llhttp let no space or fold through, so `\r\nname:` is exact.
        self.lower = block.lower()
        self._values: dict[str, str | None] = {}
        self.length = self._find_length(default=length, error=error)
        self.credential = self.find(_CREDENTIAL)
        named = self.find(b"connection")
        self.connection = {token.strip(b" \t") for token in named.lower().split(b",")} if named else set()
        # The lines that go on to the next hop.
        drop = (self.connection | _HOP_BY_HOP) - _KEPT - {b""}
        if is_request:
            drop.update(_personal(self.lower))
            # A page that was opened with its token in the URL sends that along.
            if take_off_shown((self.find(b"referer") or b"").decode("latin-1"))[1]:
                drop.add(b"referer")
        self.onward = without(block, drop) if any(b"\r\n%b:" % name in self.lower for name in drop) else block

    def find(self, name: bytes) -> bytes | None:
        """The value of the header `name` (lower case), several of them joined as RFC 9110 5.3 says."""
        mark = b"\r\n" + name + b":"
        at = self.lower.find(mark)
        if at < 0:
            return None
        values = []
        while at >= 0:
            start = at + len(mark)
            end = self.block.index(b"\r\n", start)
            values.append(self.block[start:end].strip(b" \t"))
            at = self.lower.find(mark, end)
        return b", ".join(values)

    def get(self, name: str) -> str | None:
        """The same as text; remembered, because owners ask for the same few."""
        try:
            return self._values[name]
        except KeyError:
            value = self.find(name.lower().encode())
            self._values[name] = None if value is None else value.decode("latin-1")
            return self._values[name]

    def names(self) -> list[str]:
        """The names of all headers, in lower case."""
        return [line.partition(b":")[0].decode("latin-1") for line in self.lower.split(b"\r\n") if line]

    def _find_length(self, *, default: int, error: type[Exception]) -> int:
        coding = self.find(b"transfer-encoding")
        count = self.find(b"content-length")
        if coding is not None:
            # RFC 9112 6.1: both lengths are an attack or a bug; anything but chunked cannot be framed.
            if count is not None or coding.lower() != b"chunked":
                raise error("The Transfer-Encoding is not chunked, or there is a Content-Length too.")
            return CHUNKED
        if count is None:
            return default
        if not count.isdigit() or len(count) > 18:
            raise error("The Content-Length is not a single number.")
        return int(count)


class Head:
    """The head of a valid request; shared by all requests with the same."""

    __slots__ = (
        "expects",
        "fields",
        "is_http_10",
        "is_upgrade",
        "keep_alive",
        "length",
        "line",
        "memo",
        "method",
        "onward",
        "shown",
        "target",
    )

    def __init__(self, line: bytes, fields: Fields) -> None:
        match = _request_line(line)
        if match is None:
            raise MalformedRequest("The request line is not METHOD /path HTTP/1.1.")
        method, target, minor = match.groups()
        self.target, given = take_off_shown(target.decode()) if b"?" in target else (target.decode(), {})
        self.line = b"%b %b HTTP/1.%b" % (method, self.target.encode(), minor) if given else line
        self.fields = fields
        self.method = method.decode()
        self.shown = _read_shown(fields, given)
        self.is_http_10 = minor == b"0"
        self.length = fields.length
        # RFC 9110 10.1.1: whether the body comes after a 100 Continue. A client of HTTP/1.0 knows none.
        self.expects = not self.is_http_10 and (fields.find(b"expect") or b"").lower() == b"100-continue"
        connection = fields.connection
        self.keep_alive = b"close" not in connection and (not self.is_http_10 or b"keep-alive" in connection)
        # Only WebSocket: an `Upgrade: h2c`, which Java clients send with ordinary requests, is dropped.
        self.is_upgrade = (
            b"upgrade" in connection and (fields.find(b"upgrade") or b"").lower() == b"websocket"
        )
        # For routers, each under its own key: what they found out about every request with this head.
        self.memo: dict[object, Any] = {}
        # The head for an upstream that needs nothing changed.
        self.onward = self.line + fields.onward


class Request(msgspec.Struct):
    """One request. A Struct, because there is one each time: it is made in 0.18 µs, a plain class in 0.29."""

    head: Head
    method: str
    target: str
    client: str
    # Set when this address did not take the request and the router is asked again.
    refused: Address | None = None
    # Whether that address had taken the connection: its process may run, and have ended this exchange only.
    was_sent: bool = False

    @property
    def is_upgrade(self) -> bool:
        """Whether the client wants to speak WebSocket."""
        return self.head.is_upgrade

    def header(self, name: str) -> str | None:
        """The value of the header, several of them joined by commas; None when there is none."""
        return self.head.fields.get(name)


class Response:
    """The head of an upstream's answer; shared by all answers with the same head."""

    __slots__ = ("head", "keep_alive", "length", "status")

    def __init__(self, head: bytes, line: re.Match[bytes]) -> None:
        minor, status = line.groups()
        fields = Fields(head[line.end() - 2 :], length=UNTIL_CLOSE, error=MalformedResponse)
        self.status = int(status)
        self.keep_alive = b"close" not in fields.connection and (
            minor == b"1" or b"keep-alive" in fields.connection
        )
        # RFC 9112 6.3: these end with their head, whatever length they claim.
        self.length = 0 if self.status < 200 or self.status in (204, 304) else fields.length
        # RFC 9110 2.5: an intermediary answers with its own version.
        self.head = head if self.status == 101 else b"HTTP/1.1" + head[8 : line.end() - 2] + fields.onward


def read_head(head: bytes) -> Head:
    """What `head` (a request's, up to and with its empty line) says; raises MalformedRequest."""
    at = head.find(b"\r\n")
    if not at:
        # RFC 9112 2.2: ignore an empty line before the request line.
        head = head[2:]
        at = head.find(b"\r\n")
    block = head[at:]
    read = Head(head[:at], _remember_fields(block) if len(block) < MEMORABLE else _read_fields(block))
    if read.is_http_10:
        if read.length == CHUNKED:
            raise MalformedRequest("HTTP/1.0 knows no Transfer-Encoding.")
    elif read.fields.find(b"host") is None:
        raise MalformedRequest("The request has no Host header.")
    if read.is_upgrade:
        _check_handshake(read)
    return read


def _check_handshake(head: Head) -> None:
    """Refuses a WebSocket that no server may accept (RFC 6455 4.2.1), before a browser is started for it."""
    if head.method != "GET" or head.length or head.is_http_10:
        raise MalformedRequest("A WebSocket starts with an HTTP/1.1 GET without a body.")
    if not _websocket_key(head.fields.find(b"sec-websocket-key") or b""):
        raise MalformedRequest("A WebSocket needs one Sec-WebSocket-Key: 16 random bytes in base64.")
    if head.fields.find(b"sec-websocket-version") != WEBSOCKET_VERSION.encode():
        raise UnsupportedWebSocket


def take_off_shown(target: str) -> tuple[str, dict[str, str]]:
    """The URL or target without what its query shows of its sender, and that by its name.

    Of several values the first one counts, and none of them stays. A URL in the query of another, as
    `/json/new` takes it, is safe from this if it is encoded.
    """
    path, mark, query = target.partition("?")
    kept, shown = [], dict[str, str]()
    for piece in query.split("&"):
        name, _, value = piece.partition("=")
        if unquote(name) in _SHOWN:
            shown.setdefault(unquote(name), unquote(value))
        else:
            kept.append(piece)
    if not shown:
        return target, shown
    return path + (mark + "&".join(kept) if kept else ""), shown


def _read_shown(fields: Fields, query: dict[str, str]) -> Shown:
    authorization, cookies = fields.find(b"authorization"), fields.find(b"cookie")
    if authorization is None and cookies is None and not query:
        return NOTHING_SHOWN
    token = _read_authorization(authorization) if authorization else ""
    found = dict[bytes, bytes]()
    for pair in re.split(rb"[;,]", cookies or b""):
        name, _, value = pair.strip().partition(b"=")
        found.setdefault(name, value)
    logins = (found.get(name.encode()) for name in (SECURE_LOGIN_COOKIE, LOGIN_COOKIE))
    cookie = next(filter(None, logins), b"").strip(b'"').decode("latin-1")
    return Shown(token or query.get(TOKEN_QUERY, ""), query.get(TICKET_QUERY, ""), cookie)


def _read_authorization(value: bytes) -> str:
    """The token in an Authorization header (RFC 6750 2.1, RFC 7617 2); empty for schemes without one."""
    scheme, _, rest = value.partition(b" ")
    given = rest.strip()
    if scheme.lower() == b"basic":
        # Any user: the token says who it is. What is not base64 is refused as a wrong token.
        with suppress(binascii.Error):
            given = base64.b64decode(given, validate=True).partition(b":")[2]
    elif scheme.lower() != b"bearer":
        return ""
    return given.decode("latin-1")


def _read_fields(block: bytes) -> Fields:
    try:
        httptools.HttpRequestParser(None).feed_data(b"POST / HTTP/1.1" + block)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError as error:
        raise MalformedRequest(f"The request head is malformed: {error}.") from error
    fields = Fields(block, length=0, error=MalformedRequest, is_request=True)
    # Two Hosts come joined by a comma, which none may hold.
    if not _host((fields.find(b"host") or b"").lower()):
        raise MalformedRequest("The request has more than one Host header, or an invalid one.")
    return fields


_remember_fields = lru_cache(_REMEMBERED)(_read_fields)


def read_response(head: bytes) -> Response:
    """The response that `head` holds; raises MalformedResponse. A HEAD's has no body, whatever it says."""
    line = _status_line(head)
    if line is None:
        raise MalformedResponse("no HTTP/1.1 status line")
    try:
        httptools.HttpResponseParser(None).feed_data(head)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError as error:
        raise MalformedResponse(str(error)) from error
    return Response(head, line)


# Called by the protocols directly for what is shorter than MEMORABLE: a hit costs no Python frame.
remember_head = lru_cache(_REMEMBERED)(read_head)
remember_response = lru_cache(_REMEMBERED)(read_response)


def without(block: bytes, names: frozenset[bytes] | set[bytes]) -> bytes:
    """The header lines but those with one of the names (lower case)."""
    lines = block.split(b"\r\n")
    return b"\r\n".join([line for line in lines if line.partition(b":")[0].lower() not in names])
