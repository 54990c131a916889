"""Heads as they go on: verbatim where possible, else with whole lines taken out or put in. Pure."""

from collections.abc import Sequence
from http import HTTPStatus

from remuda.fleet.relay.head import Request, Response, tokens
from remuda.fleet.relay.plan import Answer, Forward, Header

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

# RFC 9110 7.6.1. `TE` and `Upgrade` are listed in Connection by whoever obeys; these need no listing.
_HOP_BY_HOP = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"te", b"upgrade"))
# Naming one of these in Connection must not make it disappear: the next parser would frame differently.
_KEPT = frozenset((b"content-length", b"transfer-encoding", b"host"))
_REASONS = {status.value: status.phrase for status in HTTPStatus}


def onward(request: Request, plan: Forward) -> bytes:
    """The request's head as the upstream gets it."""
    head = request.head
    drop = _dropped(request.connection, keep=not request.is_http_10)
    if drop or plan.headers:
        drop |= {name.lower().encode() for name, _ in plan.headers}
        head = _without(head, drop)
        if request.is_upgrade:
            head = _with(head, b"Connection: Upgrade\r\nUpgrade: websocket\r\n")
        if plan.headers:
            head = _with(head, _lines(plan.headers))
    if plan.target is not None:
        line_end = head.index(b"\r\n")
        version = head[line_end - 8 : line_end]
        head = b"%b %b %b%b" % (request.method.encode(), _clean(plan.target), version, head[line_end:])
    if plan.host is not None:
        head = _with(_without(head, {b"host"}), b"Host: %b\r\n" % _clean(plan.host))
    return head


def homeward(response: Response, request: Request, *, keep_alive: bool) -> bytes:
    """The response's head as the client gets it."""
    head = response.head
    if response.status == 101:
        return head
    drop = _dropped(response.connection, keep=b"\r\nkeep-alive:" not in response.lower)
    if drop:
        head = _without(head, drop)
    if response.is_http_10:
        head = b"HTTP/1.1" + head[8:]
    if not keep_alive:
        return _with(_without(head, {b"connection"}), b"Connection: close\r\n")
    return _with(head, b"Connection: keep-alive\r\n") if request.is_http_10 else head


def render(answer: Answer, request: Request | None, *, keep_alive: bool) -> bytes:
    """A whole response made here."""
    status, body = answer.status, answer.body
    head = [b"HTTP/1.1 %d %b\r\n" % (status, _REASONS.get(status, "Unknown").encode())]
    if status >= 200 and status != 204:
        head.append(b"Content-Type: %b\r\nContent-Length: %d\r\n" % (_clean(answer.content_type), len(body)))
    head.append(_lines(answer.headers))
    if not keep_alive:
        head.append(b"Connection: close\r\n")
    elif request is not None and request.is_http_10:
        head.append(b"Connection: keep-alive\r\n")
    head.append(b"\r\n")
    if status not in (204, 304) and (request is None or request.method != "HEAD"):
        head.append(body)
    return b"".join(head)


def _dropped(connection: bytes, *, keep: bool) -> set[bytes]:
    """The names of lines that end at this hop; none for what every client sends, to stay verbatim."""
    if not connection or (connection == b"keep-alive" and keep):
        return set()
    return (tokens(connection) | _HOP_BY_HOP) - _KEPT


def _without(head: bytes, names: set[bytes]) -> bytes:
    start, *lines = head.split(b"\r\n")
    return b"\r\n".join([start, *(line for line in lines if line.partition(b":")[0].lower() not in names)])


def _with(head: bytes, lines: bytes) -> bytes:
    return head[:-2] + lines + b"\r\n"


def _lines(headers: Sequence[Header]) -> bytes:
    return b"".join(b"%b: %b\r\n" % (_clean(name), _clean(value)) for name, value in headers)


def _clean(text: str) -> bytes:
    """The text as it may stand in a head; a line break in it would start a header of somebody's choice."""
    if not text.isprintable():
        raise ValueError(f"{text!r} cannot stand in a head")
    return text.encode("latin-1")
