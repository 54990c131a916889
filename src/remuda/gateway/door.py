"""The front door: checks where a request comes from and what it may do, finds who serves it, and counts what
went through."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from remuda.accounts.model import EVERYTHING, Grant
from remuda.base.errors import RemudaError, Unauthorized
from remuda.fleet.origin import Origin
from remuda.fleet.relay import Address, Forward, Limits, Plan, Relay, Request, TlsFor, TunnelLimits
from remuda.gateway.counters import TALLY, Counters
from remuda.gateway.destinations import (
    Backend,
    Destination,
    find_destination,
    is_for_any_page,
    session_of,
    speaks_cdp,
    takes_any_text,
)
from remuda.gateway.directory import Directory
from remuda.gateway.doorkeeper import Doorkeeper, Refusal
from remuda.gateway.faces import render_error
from remuda.gateway.handover import Handover
from remuda.gateway.journal import Journal
from remuda.gateway.meter import Meter
from remuda.gateway.pages import PageRule, check_content_type
from remuda.gateway.proxies import TrustedProxies
from remuda.playwright.revoked import Revoked

# Who opens a WebSocket here has a browser to himself.
_BROWSERS = frozenset((Backend.PLAYWRIGHT, Backend.CDP, Backend.BIDI))


OriginRouter = Callable[[Request, Origin], Plan | Awaitable[Plan]]
"""Finds a way of its own to who serves a request of this origin."""


class Credential(Protocol):
    """What the door shows to the processes behind it."""

    line: bytes


class _NoCredential:
    """For doors before which nothing is guarded."""

    line = b""


class _Admitted(NamedTuple):
    """What is known of every request with the same head."""

    destination: Destination
    grant: Grant
    epoch: object
    """That of the Access when the grant was found: when it is another one, the grant may be, too."""


class _Open:
    """In place of an Access where no token is needed."""

    epoch: object = object()


class Door:
    """Routes of the public port; `relay` serves them.

    With a `keeper` every request needs a token; without, none does.
    """

    def __init__(
        self,
        directory: Directory,
        *,
        rooms: Mapping[Backend, OriginRouter] | None = None,
        origins: PageRule | None = None,
        counters: Counters | None = None,
        limits: Limits | None = None,
        secret: Credential | None = None,
        keeper: Doorkeeper | None = None,
        revoked: Revoked | None = None,
        proxies: TrustedProxies | None = None,
        scheme: str = "http",
        handover: Handover | None = None,
        meter: Meter | None = None,
        tls_for: TlsFor = lambda _: None,
    ) -> None:
        self.journal = Journal()
        self.counters = counters or Counters(self._client_left, self._api_refused)
        self.relay = Relay(
            self.route, render_error, guard=None, observer=self.counters, limits=limits, tls_for=tls_for
        )
        self._secret = secret or _NoCredential()
        self._directory = directory
        # Those that find a way of their own to who serves them.
        self._rooms = rooms or {}
        self._origins = origins or PageRule()
        self._keeper = keeper
        self._access = keeper.access if keeper is not None else _Open()
        self._revoked = revoked
        self._proxies = proxies or None
        self._scheme = scheme
        self._vet = None if handover is None else partial(handover.check, pool=self.relay.pool)
        self._meter = meter
        # The same head means something else if a trusted proxy sends it.
        self._proxied = object()

    def route(self, request: Request) -> Plan | Awaitable[Plan]:
        """Where the request goes; awaitable only if a process has to be looked up."""
        if request.refused is not None:
            self._directory.forget(request.refused, may_run=request.was_sent)
            self.journal.node_lost(request)
        # A client sends the same few heads again and again: 0.1 µs instead of 3. So its token is not even
        # hashed for each command. To compare the epoch and the session's account takes 0.3 µs, with auth on
        # and off alike.
        known: _Admitted | None = request.head.memo.get(
            self if self._proxies is None else self._memo_key(request)
        )
        if known is None or known.epoch is not self._access.epoch:
            return self._admit(request)
        destination = known.destination
        if destination.session is not None and not destination.hands_out_urls and not request.head.is_upgrade:
            found = self._directory.find_node(destination.session, known.grant)
            if isinstance(found, Address):
                # A driver has no use for who asked, and a head that goes on nearly as it came costs little.
                return Forward(found, destination.target, credential=self._secret.line)
            return self._forward_later(request, known, found)
        return self._send(request, known)

    # Who may come in

    def _admit(self, request: Request) -> Plan | Awaitable[Plan]:
        # Before it is looked up: what changes meanwhile must be noticed.
        epoch = self._access.epoch
        if self._keeper is None:
            return self._enter(request, EVERYTHING, epoch)
        try:
            found = self._keeper.grant_of(request)
        except Unauthorized as error:
            return self._refuse(self._keeper, request, error)
        if isinstance(found, Grant):
            return self._enter(request, found, epoch)
        return self._admit_later(self._keeper, request, found, epoch)

    async def _admit_later(
        self, keeper: Doorkeeper, request: Request, found: Awaitable[Grant], epoch: object
    ) -> Plan:
        try:
            grant = await found
        except Unauthorized as error:
            return await self._refuse(keeper, request, error)
        plan = self._enter(request, grant, epoch)
        return plan if isinstance(plan, Plan) else await plan

    async def _refuse(self, keeper: Doorkeeper, request: Request, error: Unauthorized) -> Plan:
        await keeper.refuse(request, error, address=self.origin_of(request).address)
        raise error

    def _enter(self, request: Request, grant: Grant, epoch: object) -> Plan | Awaitable[Plan]:
        admitted = _Admitted(self._judge(request, grant), grant, epoch)
        if grant.session is None:  # A ticket is looked at each time.
            request.head.memo[self._memo_key(request)] = admitted
        if self._meter is not None:
            request.head.memo[TALLY] = self._meter.tally(admitted.destination.backend, grant)
        return self._send(request, admitted)

    def _judge(self, request: Request, grant: Grant) -> Destination:
        is_cdp = request.is_upgrade and speaks_cdp(
            request.header("user-agent") or "", request.head.fields.names(), request.target
        )
        try:
            destination = find_destination(
                request.method, request.target, is_upgrade=request.is_upgrade, is_cdp=is_cdp
            )
        except RemudaError:
            if self._keeper is None or grant.account:
                raise
            self._keeper.count(Refusal.MISSING)
            raise Unauthorized from None
        if self._keeper is not None:
            self._keeper.check(grant, destination)
        is_proxied = self._is_proxied(request)
        if not is_for_any_page(request.method, request.target, is_auth_on=self._keeper is not None):
            is_page = destination.backend in (Backend.API, Backend.PROBES)
            self._origins.check(request, is_page=is_page, is_proxied=is_proxied)
        if not takes_any_text(request.target):
            check_content_type(request)
        if destination.backend in _BROWSERS and request.is_upgrade:
            self._origins.check_program(request)
        return destination

    def _memo_key(self, request: Request) -> object:
        return self._proxied if self._is_proxied(request) else self

    def _is_proxied(self, request: Request) -> bool:
        return self._proxies is not None and self._proxies.includes(request.client)

    # Where to

    def _send(self, request: Request, admitted: _Admitted) -> Plan | Awaitable[Plan]:
        destination, grant, _ = admitted
        if destination.backend in self._rooms:
            return self._rooms[destination.backend](request, self.origin_of(request, grant))
        if destination.session is not None:
            found = self._directory.find_node(destination.session, grant)
        elif destination.storage is not None:
            found = self._directory.find_storage(destination.storage)
        elif destination.backend is Backend.MANAGER:
            found = self._directory.find_manager()
        else:
            found = self._directory.find_api()
        if isinstance(found, Address):
            return self._forward(request, admitted, found)
        return self._forward_later(request, admitted, found)

    async def _forward_later(
        self, request: Request, admitted: _Admitted, found: Awaitable[Address]
    ) -> Forward:
        return self._forward(request, admitted, await found)

    def _forward(self, request: Request, admitted: _Admitted, address: Address) -> Forward:
        destination, grant, _ = admitted
        is_command = destination.backend is Backend.NODE and not destination.hands_out_urls
        headers = () if is_command else self.origin_of(request, grant).headers()
        if destination.may_be_signed:
            given = request.header("authorization") or ""
            # A signature says nothing of the secret; a token ends here, as ever.
            headers = (*headers, ("X-Remuda-Authorization", given if given.startswith("AWS4") else ""))
        vet = self._vet if destination.backend is Backend.MANAGER else None
        limits = TunnelLimits()
        if request.is_upgrade and self._revoked is not None:
            # A session may be another token's, and then goes on when this client's is revoked.
            limits = TunnelLimits(cause=self._revoked.cause_for(grant))
        return Forward(
            address, destination.target, headers, credential=self._secret.line, vet=vet, limits=limits
        )

    def origin_of(self, request: Request, grant: Grant = EVERYTHING) -> Origin:
        """Where a request at the front door comes from."""
        origin = Origin.of_client(
            request.header,
            address=request.client,
            scheme=self._scheme,
            is_proxy=self._is_proxied(request),
            account=grant.account,
            token=grant.token,
            token_id=grant.token_id,
            scopes=grant.scopes,
            login=grant.login,
            until=grant.until,
        )
        if self._proxies is None or not self._is_proxied(request):
            return origin
        address = self._proxies.client_of(request.header, address=request.client)
        return msgspec.structs.replace(origin, address=address)

    def _api_refused(self, request: Request) -> None:
        """Counts a 401 that was not decided here: only requests that went on are known by their head."""
        known: _Admitted | None = request.head.memo.get(self._memo_key(request))
        if self._keeper is not None and known is not None and not known.grant.account:
            self._keeper.count(Refusal.MISSING)

    def _client_left(self, request: Request) -> None:
        session = session_of(request.target)
        known: _Admitted | None = request.head.memo.get(self._memo_key(request))
        # A client cannot write to the log of another account's session.
        is_own = session is not None and known is not None and self._directory.is_known(session, known.grant)
        if self._keeper is None or is_own:
            self.journal.client_lost(request)
