"""The front door: checks where a request comes from, finds who serves it, and counts what went through."""

from collections.abc import Awaitable, Mapping
from typing import Protocol

from remuda.fleet.relay import Address, Forward, Limits, Plan, Relay, Request, Router
from remuda.gateway.counters import Counters
from remuda.gateway.directory import Directory
from remuda.gateway.faces import render_error
from remuda.gateway.journal import Journal
from remuda.gateway.origin import OriginRule, check_content_type
from remuda.gateway.routes import Kind, Route, find_route, is_for_any_page, speaks_cdp, takes_any_text

# Who opens a WebSocket here has a browser to himself.
_BROWSERS = frozenset((Kind.PLAYWRIGHT, Kind.CDP, Kind.BIDI))


class Credential(Protocol):
    """What the door shows to the processes behind it."""

    line: bytes


class _NoCredential:
    """For doors before which nothing is guarded."""

    line = b""


class Door:
    """Routes of the public port; `relay` serves them."""

    def __init__(
        self,
        directory: Directory,
        *,
        rooms: Mapping[Kind, Router] | None = None,
        origins: OriginRule | None = None,
        counters: Counters | None = None,
        limits: Limits | None = None,
        secret: Credential | None = None,
    ) -> None:
        self.journal = Journal()
        self.counters = counters or Counters(self.journal.client_lost)
        self.relay = Relay(self.route, render_error, guard=None, observer=self.counters, limits=limits)
        self._secret = secret or _NoCredential()
        self._directory = directory
        # Those that find a way of their own to who serves them.
        self._rooms = rooms or {}
        self._origins = origins or OriginRule()

    def route(self, request: Request) -> Plan | Awaitable[Plan]:
        """Where the request goes; awaitable only when somebody has to be looked up."""
        if request.refused is not None:
            self._directory.forget(request.refused)
            self.journal.node_lost(request)
        # A client sends the same few heads again and again: 0.1 µs instead of 3.
        route: Route = request.head.memo.get(self) or self._judge(request)
        if route.session is not None:
            found = self._directory.find_node(route.session)
            if isinstance(found, Address):
                # A driver has no use for who asked, and a head that goes on nearly as it came costs little.
                return Forward(found, route.target, credential=self._secret.line)
        elif route.kind in self._rooms:
            return self._rooms[route.kind](request)
        else:
            found = self._find_other(route)
            if isinstance(found, Address):
                return self._forward(request, route, found)
        return self._forward_later(request, route, found)

    def _find_other(self, route: Route) -> Address | Awaitable[Address]:
        if route.storage is not None:
            return self._directory.find_storage(route.storage)
        return self._directory.find_manager() if route.kind is Kind.MANAGER else self._directory.find_api()

    def _judge(self, request: Request) -> Route:
        is_cdp = request.is_upgrade and speaks_cdp(
            request.header("user-agent") or "", request.head.fields.names(), request.target
        )
        route = find_route(request.method, request.target, is_upgrade=request.is_upgrade, is_cdp=is_cdp)
        if not is_for_any_page(request.method, request.target):
            self._origins.check(request, is_page=route.kind is Kind.API)
        if not takes_any_text(request.target):
            check_content_type(request)
        if route.kind in _BROWSERS and request.is_upgrade:
            self._origins.check_program(request)
        request.head.memo[self] = route
        return route

    async def _forward_later(self, request: Request, route: Route, found: Awaitable[Address]) -> Forward:
        return self._forward(request, route, await found)

    def _forward(self, request: Request, route: Route, address: Address) -> Forward:
        headers = () if route.kind is Kind.NODE else _forwarded(request)
        return Forward(address, route.target, headers, credential=self._secret.line)


def _forwarded(request: Request) -> list[tuple[str, str]]:
    headers = [("X-Forwarded-For", request.client), ("X-Forwarded-Proto", "http")]
    host = request.header("host")
    return headers if host is None else [*headers, ("X-Forwarded-Host", host)]
