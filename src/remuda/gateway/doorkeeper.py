"""Decides what may come in where tokens are needed: finds out what the token of a request grants, compares
that with where the request goes, and counts what is refused."""

from collections import Counter
from collections.abc import Awaitable
from enum import StrEnum

from remuda.accounts.access import EXPIRED, Access
from remuda.accounts.guesses import Guesses
from remuda.accounts.model import COOKIE_PREFIX, NOTHING, Grant
from remuda.accounts.tickets import Tickets, is_still_backed
from remuda.base.errors import ScopeMissing, Unauthorized
from remuda.fleet.relay import Request
from remuda.gateway.destinations import Destination, ticketed_session
from remuda.store import Store


class Refusal(StrEnum):
    """Why a request was turned away; a field of METRICS_ACCESS."""

    MISSING = "missing"
    WRONG = "wrong"
    EXPIRED = "expired"
    TICKET = "ticket"
    SCOPE = "scope"
    OTHER_ACCOUNT = "other_account"


class Doorkeeper:
    """Knows what each request may do."""

    def __init__(self, store: Store, access: Access, tickets: Tickets) -> None:
        self.access = access
        self._store = store
        self._tickets = tickets
        self._guesses = Guesses()
        self._refusals: Counter[Refusal] = Counter()

    def grant_of(self, request: Request) -> Grant | Awaitable[Grant]:
        """What the request may do by what it shows; Unauthorized if that is wrong. Awaitable if it must be
        looked up."""
        shown = request.head.shown
        if shown.token:
            return self.access.find(shown.token)
        if shown.ticket:
            return self._read_ticket(request)
        return self._read_cookie(shown.cookie) if shown.cookie else NOTHING

    async def _read_ticket(self, request: Request) -> Grant:
        session = ticketed_session(request.target, is_upgrade=request.is_upgrade)
        if session is None:
            raise Unauthorized("A ticket opens only the WebSockets and DevTools of its session.")
        grant = self._tickets.read(request.head.shown.ticket, session)
        if not await is_still_backed(self._store, grant):
            raise Unauthorized("The token that this ticket was made for has expired or was revoked.")
        return grant

    def _read_cookie(self, cookie: str) -> Grant | Awaitable[Grant]:
        """What a login grants. One that is over counts as none: its browser is shown the login page."""
        # Here no wrong one is slowed down, so this must not be a way to guess tokens.
        if not cookie.startswith(COOKIE_PREFIX):
            return NOTHING
        try:
            found = self.access.find(cookie)
        except Unauthorized:
            return NOTHING
        return found if isinstance(found, Grant) else self._look_up_cookie(found)

    async def _look_up_cookie(self, found: Awaitable[Grant]) -> Grant:
        try:
            return await found
        except Unauthorized:
            return NOTHING

    def check(self, grant: Grant, destination: Destination) -> None:
        """Raise Unauthorized or ScopeMissing if the request may not go there."""
        needed = destination.scope
        if needed is None:
            return  # Decided where the request is served.
        if not grant.account:
            self.count(Refusal.MISSING)
            raise Unauthorized
        if not grant.may(needed):
            self.count(Refusal.SCOPE)
            raise ScopeMissing(
                f"The token {grant.token!r} has the scopes {' '.join(sorted(grant.scopes)) or 'none'}; "
                f"this needs the scope {needed.value!r}."
            )

    async def refuse(self, request: Request, error: Unauthorized, *, address: str) -> None:
        """Counts what a request shows wrongly, and takes the longer the more wrong tokens came from there."""
        shown = request.head.shown
        if error.message == EXPIRED:
            self.count(Refusal.EXPIRED)
            return
        self.count(Refusal.TICKET if shown.ticket and not shown.token else Refusal.WRONG)
        await self._guesses.slow_down(address)

    def count(self, reason: Refusal, times: int = 1) -> None:
        self._refusals[reason] += times

    def take(self) -> Counter[Refusal]:
        """What was counted since the last time."""
        refusals, self._refusals = self._refusals, Counter()
        return refusals
