"""Keeps web pages out: a browser on the same machine must not drive the herd for a site it visits.

A page gives itself away by its Origin, or where it sends none, by Sec-Fetch-Site: it can forge neither. One
that rebinds its own name to 127.0.0.1 is of the same origin as the door, but it cannot hide that name in the
Host header. And no page can send anything but a form's content types without asking first. Pure.
"""

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from remuda.base.errors import Forbidden, InvalidArgument
from remuda.base.hosts import is_loopback
from remuda.fleet.relay import Request

# Fetch standard, "CORS-safelisted request-header": what any page may send to anywhere, unasked.
FORM_TYPES = frozenset(("application/x-www-form-urlencoded", "multipart/form-data", "text/plain"))
_READING = frozenset(("GET", "HEAD", "OPTIONS"))


class PageRule:
    """Which pages may talk to the gateway: its own, and those of the configured origins.

    Its own are those that were loaded from where the request goes to. Bound to loopback, that must be an
    address or localhost: any other name could be a stranger's. Bound to a public address, or asked through a
    trusted proxy, it may be any name, and the scheme may be that of a proxy before it.
    """

    def __init__(
        self, allowed: Iterable[str] = (), *, is_bound_to_loopback: bool = True, scheme: str = "http"
    ) -> None:
        self._allowed = frozenset(origin.lower().rstrip("/") for origin in allowed)
        self._hosts = frozenset(urlsplit(origin).netloc for origin in self._allowed)
        self._is_bound_to_loopback = is_bound_to_loopback
        self._scheme = scheme

    def check(self, request: Request, *, is_page: bool = False, is_proxied: bool = False) -> None:
        """Raise Forbidden when the request comes from a page that may not send it.

        A link elsewhere may lead to what `is_page`, since the page with the link sees nothing of it. Which
        host the client sees is told by a trusted proxy.
        """
        origin, host = request.header("origin"), (request.header("host") or "").lower()
        if is_proxied:
            told = (request.header("x-forwarded-host") or "").partition(",")[0].strip().lower()
            host = told or host
        is_on_loopback = self._is_bound_to_loopback and not is_proxied
        if origin is not None:
            if not self._is_allowed(origin.lower(), host, is_on_loopback=is_on_loopback):
                raise _forbidden(origin)
        elif is_on_loopback and host not in self._hosts and not _is_no_domain(host):
            raise Forbidden(
                f"Requests to the host name {host} are not allowed here; use an address or localhost, "
                f"or add {self._scheme}://{host} to allow_origins."
            )
        elif not self._is_asked_for(request, is_page=is_page):
            told_page = _split(request.header("referer") or "")
            raise _forbidden(f"{told_page[0]}://{told_page[1]}" if told_page else "another web page")

    def check_program(self, request: Request) -> None:
        """Raise Forbidden when any page but a configured one asks for what only programs need.

        The door's own pages too: they need no such thing.
        """
        origin = request.header("origin")
        if origin is not None and origin.lower() not in self._allowed:
            raise _forbidden(origin)

    def _is_allowed(self, origin: str, host: str, *, is_on_loopback: bool) -> bool:
        if origin in self._allowed:
            return True
        parts = _split(origin)
        if parts is None:
            return False
        scheme, netloc = parts[:2]
        if is_on_loopback:
            return origin == f"{self._scheme}://{host}" and _is_no_domain(host)
        return netloc == host and scheme in ("http", "https")

    def _is_asked_for(self, request: Request, *, is_page: bool) -> bool:
        """Whether a request without an Origin comes from a program, a person or a page that may send it."""
        if request.header("sec-fetch-site") in (None, "none", "same-origin"):
            return True
        told = _split((request.header("referer") or "").lower())
        if told is not None and f"{told[0]}://{told[1]}" in self._allowed:
            return True
        is_visit = (
            request.header("sec-fetch-mode") == "navigate" and request.header("sec-fetch-dest") == "document"
        )
        return is_page and is_visit and request.method == "GET"


def check_content_type(request: Request) -> None:
    """Raise InvalidArgument when the request's body has a type that a page's form can have."""
    given = request.header("content-type") or ""
    kind = given.partition(";")[0].strip().lower()
    if kind in FORM_TYPES and request.method not in _READING:
        raise InvalidArgument(
            f"The Content-Type is {kind}, as web forms send it; send application/json "
            "(with curl: -H 'Content-Type: application/json')."
        )


def _forbidden(page: str) -> Forbidden:
    return Forbidden(f"Requests from {page} are not allowed here; to let them in, add it to allow_origins.")


def _is_no_domain(host: str) -> bool:
    """Whether the Host is empty, an address or localhost: none of which can be rebound."""
    parts = _split(f"http://{host}")
    if not host or parts is None:
        return not host
    try:
        ipaddress.ip_address(parts[2])
    except ValueError:
        return is_loopback(parts[2])
    return True


def _split(url: str) -> tuple[str, str, str] | None:
    """Scheme, host with port, and host of an origin; None for `null` and anything but an origin."""
    try:
        parts = urlsplit(url)
        name = parts.hostname
    except ValueError:
        return None
    return (parts.scheme, parts.netloc, name) if name else None
