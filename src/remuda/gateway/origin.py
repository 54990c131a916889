"""Keeps web pages out: a browser on the same machine must not drive the herd for a site it visits.

A page gives itself away by its Origin. One that rebinds its own name to 127.0.0.1 sends no Origin with a
plain GET, but it cannot hide that name in the Host header. Pure.
"""

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from remuda.base.errors import Forbidden
from remuda.base.hosts import is_loopback
from remuda.fleet.relay import Request


class OriginRule:
    """Which pages may talk to the gateway.

    Loopback and the configured origins always may. Bound to a public address, so may pages of the gateway
    itself: there the Host is ours. Bound to loopback it could be anybody's name.
    """

    def __init__(self, allowed: Iterable[str] = (), *, is_bound_to_loopback: bool = True) -> None:
        self._allowed = frozenset(origin.lower().rstrip("/") for origin in allowed)
        self._hosts = frozenset(urlsplit(origin).netloc for origin in self._allowed)
        self._is_bound_to_loopback = is_bound_to_loopback

    def check(self, request: Request) -> None:
        """Raise Forbidden when the request comes from a page that may not send it."""
        if not self._is_allowed(request.header("origin"), request.header("host") or ""):
            raise _forbidden(request.header("origin") or request.header("host"))

    def check_program(self, request: Request) -> None:
        """Raise Forbidden when any page but a configured one asks for what only programs need.

        Pages on loopback too: a browser of the herd may show one, and must not take another browser for it.
        """
        origin = request.header("origin")
        if origin is not None and origin.lower() not in self._allowed:
            raise _forbidden(origin)

    def _is_allowed(self, origin: str | None, host: str) -> bool:
        host = host.lower()
        if origin is None:
            return not self._is_bound_to_loopback or host in self._hosts or _is_no_domain(host)
        parts = _split(origin.lower())
        if parts is None:
            return False
        scheme, netloc, name = parts
        if f"{scheme}://{netloc}" in self._allowed or is_loopback(name):
            return True
        return not self._is_bound_to_loopback and netloc == host


def _forbidden(page: str | None) -> Forbidden:
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
    """Scheme, host with port, and host of an origin; None for `null` and what is no origin."""
    try:
        parts = urlsplit(url)
        name = parts.hostname
    except ValueError:
        return None
    return (parts.scheme, parts.netloc, name) if name else None
