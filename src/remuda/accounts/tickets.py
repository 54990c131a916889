"""Tickets: the permits in WebSocket URLs that the herd itself hands out, in place of the client's token.

A ticket is good for the WebSockets of one session, for some hours. It is signed with the herd's secret, so
nothing has to be stored, and every process that hands out a URL can make one.
"""

import base64
import binascii

from remuda.accounts.model import Grant, token_id_of
from remuda.base import clock
from remuda.base.errors import Unauthorized
from remuda.base.ids import SessionId
from remuda.fleet.origin import Origin, Scope
from remuda.fleet.relay.head import TICKET_QUERY
from remuda.fleet.secret import HerdSecret
from remuda.keyspace.accounts import LOGIN, TOKEN, TOKENS
from remuda.store import Store

_PURPOSE = "ticket"
_USER = frozenset({Scope.USE})
# An operator's opens sessions of all accounts.
_OPERATOR = frozenset({Scope.USE, Scope.ADMIN})


class Tickets:
    """Makes and reads tickets, which are good for `lifetime` seconds."""

    def __init__(self, secret: HerdSecret, lifetime: float) -> None:
        self._secret = secret
        self._lifetime = lifetime

    def mint(self, session: str, origin: Origin) -> str:
        """A ticket for this client; empty if no token is needed here."""
        if not origin.token:
            return ""
        # A ticket must not prolong itself: URLs that are asked for with one have what is left of its time.
        until = origin.until or int(clock.now() + self._lifetime)
        kind = "a" if Scope.ADMIN in origin.scopes else "u"
        # None of the names has a space in it.
        payload = _encode(f"{until:x} {kind} {origin.account} {origin.token} {origin.token_id}".encode())
        signature = bytes.fromhex(self._secret.sign(_PURPOSE, f"{session}\n{payload}"))
        return f"{payload}.{_encode(signature)}"

    def add_to(self, url: str, session: str, origin: Origin) -> str:
        """The URL with a ticket in its query, if one is needed."""
        ticket = self.mint(session, origin)
        mark = "&" if "?" in url else "?"
        return f"{url}{mark}{TICKET_QUERY}={ticket}" if ticket else url

    def read(self, text: str, session: SessionId) -> Grant:
        """What the ticket grants in this session; Unauthorized if nothing."""
        payload, _, signature = text.partition(".")
        try:
            signed = _decode(signature).hex()
            is_ours = self._secret.has_signed(_PURPOSE, f"{session}\n{payload}", signed)
            read = _decode(payload).decode().split(" ") if is_ours else [""] * 5
            until, kind, account, token, token_id = read
        except (binascii.Error, ValueError):
            is_ours = False
        if not is_ours:
            raise Unauthorized("The ticket in this URL is not one for this session.")
        if int(until, 16) <= clock.now():
            raise Unauthorized("The ticket in this URL has expired; ask for the session's URL again.")
        return Grant(
            account=account,
            token=token,
            token_id=token_id,
            scopes=_OPERATOR if kind == "a" else _USER,
            session=session,
            until=int(until, 16),
        )


async def is_still_backed(store: Store, grant: Grant | Origin) -> bool:
    """Whether the token that a ticket was handed out for is still good, and the login if there is one.

    Asked of Redis: a WebSocket is opened once, so that one question does not matter.
    """
    if grant.login:
        digest = await store.hget(LOGIN(grant.login), "token")
    else:
        digest = await store.hget(TOKENS(grant.account), grant.token)
    # A token that was made later under the same name backs nothing of the one before.
    if digest is None or token_id_of(digest) != grant.token_id:
        return False
    name, expires_at = await store.hmget(TOKEN(digest), "name", "expiresAt")
    return name is not None and (not expires_at or clock.parse_rfc3339(expires_at) > clock.now())


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
