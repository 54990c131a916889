"""Logins to the dashboard: a cookie in place of a token. It grants what its token does, and ends on logout,
with its token, or after its time."""

import asyncio

from remuda.accounts.access import BELL, EXPIRED, KNOWN_WITHIN, WRONG
from remuda.accounts.model import (
    COOKIE_PREFIX,
    TOKEN_PREFIX,
    Grant,
    digest_of,
    may_be_token,
    new_token,
    token_id_of,
)
from remuda.accounts.tickets import is_still_backed
from remuda.base import clock
from remuda.base.errors import Unauthorized, Unavailable
from remuda.fleet.bell import wait_for
from remuda.fleet.origin import Origin, Scope
from remuda.keyspace.accounts import ACCESS_VERSION, LOGIN, TOKEN
from remuda.store import Store, load_script

_LOGIN = load_script(__file__, "login.lua", keys=[TOKEN, LOGIN], args=["token", "seconds"])


class Logins:
    """Who is logged in."""

    def __init__(self, store: Store, *, lifetime: int) -> None:
        self._store = store
        self.lifetime = lifetime
        """Seconds for which a login is good."""

    async def begin(self, token: str) -> tuple[str, Grant]:
        """A cookie's value for this token, and what it grants; Unauthorized if the token grants nothing."""
        # Not with a cookie: a login must not prolong itself.
        if not may_be_token(token) or not token.startswith(TOKEN_PREFIX):
            raise Unauthorized(WRONG)
        cookie, digest = new_token(COOKIE_PREFIX), digest_of(token)
        keys = [TOKEN(digest), LOGIN(digest_of(cookie))]
        found = await self._store.run(_LOGIN, keys=keys, args=[digest, self.lifetime])
        if found is None:
            raise Unauthorized(WRONG)
        account, name, scopes, expires_at = found
        # The login of an expired token stays for its time, and grants nothing.
        if expires_at and clock.parse_rfc3339(expires_at) <= clock.now():
            raise Unauthorized(EXPIRED)
        return cookie, Grant(account, name, token_id_of(digest), frozenset(map(Scope, scopes.split())))

    async def end(self, digest: str) -> None:
        """Ends the login with a cookie of this SHA-256, everywhere."""
        async with self._store.transaction() as transaction:
            transaction.delete(LOGIN(digest))
            transaction.incr(ACCESS_VERSION())
            transaction.publish(BELL)


async def wait_for_refusal(store: Store, origin: Origin) -> None:
    """Returns when the token or the login that was shown is good no longer; never where none is needed."""

    async def look() -> bool | None:
        try:
            return None if await is_still_backed(store, origin) else True
        except Unavailable:
            return None  # While Redis is away, front doors let in what they remember, too.

    if not origin.token:
        await asyncio.Event().wait()
    await wait_for(store, BELL, look, timeout=None, look_every=KNOWN_WITHIN)
