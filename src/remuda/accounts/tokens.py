"""Tokens: made, listed, revoked. A token is shown once, when it is made; Redis has only its SHA-256."""

import asyncio
from collections import Counter
from collections.abc import Collection
from enum import IntEnum

from msgspec import Struct

from remuda.accounts.access import BELL
from remuda.accounts.model import check_account, check_token_name, digest_of, new_token
from remuda.base import clock
from remuda.base.errors import AlreadyExists, InUse, Lost
from remuda.fleet.origin import Scope
from remuda.fleet.sweep import BATCH, work_on
from remuda.keyspace.accounts import ACCESS_VERSION, ACCOUNT, ACCOUNTS, ADMINS, EXPIRIES, TOKEN, TOKENS
from remuda.store import Store, load_script

KEPT_EXPIRED = 7 * 86400.0
"""Seconds for which an expired token is still listed, so that its owner learns why it is refused."""

_CREATE = load_script(
    __file__,
    "create.lua",
    keys=[TOKEN, TOKENS, ACCOUNTS, ACCOUNT, ADMINS, EXPIRIES, ACCESS_VERSION],
    args=["digest", "name", "account", "scopes", "now", "expires", "expiry", "admin", "first", "bell"],
)
_REVOKE = load_script(
    __file__,
    "revoke.lua",
    keys=[TOKEN, TOKENS, ADMINS, EXPIRIES, ACCESS_VERSION],
    args=["digest", "name", "keep", "bell"],
)


class TokenView(Struct, rename="camel", kw_only=True):
    """A token: its name, its account and what it is good for. `usedAt` is about when it was last used."""

    name: str
    account: str
    scopes: list[Scope]
    created_at: str
    expires_at: str | None
    used_at: str | None
    expired: bool


class FirstToken(IntEnum):
    """What became of the token that the first start makes, as create.lua has it."""

    REGISTERED = 1
    NAME_TAKEN = 0
    NOT_WANTED = -1


class Tokens:
    """The tokens of all accounts."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def create(
        self, name: str, *, account: str, scopes: Collection[Scope], lifetime: float | None = None
    ) -> tuple[str, TokenView]:
        """A new token, good for so many seconds or until it is revoked. AlreadyExists if the account has one
        of this name."""
        token, view = new_token(), _new_view(name, account, scopes, lifetime)
        if not await self._register(token, view):
            raise AlreadyExists(
                f"The account {account!r} already has a token {name!r}; revoke it or choose another name."
            )
        return token, view

    async def register_first(self, token: str, name: str, *, account: str) -> FirstToken:
        """Registers an admin token, unless the herd has one already that lasts."""
        view = _new_view(name, account, {Scope.ADMIN})
        return FirstToken(await self._register(token, view, is_first=True))

    async def _register(self, token: str, view: TokenView, *, is_first: bool = False) -> int:
        digest, account = digest_of(token), view.account
        registered: int = await self._store.run(
            _CREATE,
            keys=[
                TOKEN(digest),
                TOKENS(account),
                ACCOUNTS(),
                ACCOUNT(account),
                ADMINS(),
                EXPIRIES(),
                ACCESS_VERSION(),
            ],
            args=[
                digest,
                view.name,
                account,
                " ".join(view.scopes),
                view.created_at,
                view.expires_at or "",
                clock.parse_rfc3339(view.expires_at) if view.expires_at else 0,
                int(Scope.ADMIN in view.scopes),
                int(is_first),
                BELL,
            ],
        )
        return registered

    async def of_account(self, account: str) -> list[TokenView]:
        """The tokens of an account, by name."""
        digests = sorted((await self._store.hgetall(TOKENS(check_account(account)))).items())
        found: list[TokenView] = []
        now = clock.now()
        for start in range(0, len(digests), BATCH):
            replies = [self._store.hgetall(TOKEN(digest)) for _, digest in digests[start : start + BATCH]]
            # One that is empty was revoked meanwhile.
            found += [_view(fields, now) for fields in await asyncio.gather(*replies) if fields]
        return found

    async def of_all(self) -> list[TokenView]:
        """The tokens of all accounts, by account and name."""
        accounts = sorted(await self._store.smembers(ACCOUNTS()))
        found: list[TokenView] = []
        for start in range(0, len(accounts), BATCH):
            of_each = await asyncio.gather(*map(self.of_account, accounts[start : start + BATCH]))
            found += [view for views in of_each for view in views]
        return found

    async def forget_expired(self) -> Counter[str]:
        """Forgets tokens that expired a week ago; how many."""
        overdue = await self._store.zrange_by_score(EXPIRIES(), "-inf", clock.now() - KEPT_EXPIRED)
        return Counter({"tokens_forgotten": await work_on(overdue, self._forget)})

    async def _forget(self, digest: str) -> bool:
        account, name = await self._store.hmget(TOKEN(digest), "account", "name")
        if account is None or name is None:  # Revoked meanwhile.
            return False
        return await self._revoke(name, digest, account=account) == 1

    async def revoke(self, name: str, *, account: str, keep_last_admin: bool) -> None:
        """Revokes a token; Lost says which there are. With `keep_last_admin`, InUse if no other admin token
        lasts: then no other could be made."""
        tokens = TOKENS(check_account(account))
        digest = await self._store.hget(tokens, check_token_name(name))
        revoked = 0
        if digest is not None:
            revoked = await self._revoke(name, digest, account=account, keep_last_admin=keep_last_admin)
        if revoked == -1:
            raise InUse(
                f"{name!r} of the account {account!r} is the last admin token that does not expire; create "
                "another one first."
            )
        if not revoked:
            names = ", ".join(sorted(await self._store.hgetall(tokens)))
            known = f"its tokens are: {names}" if names else "it has none"
            raise Lost(f"The account {account!r} has no token {name!r}; {known}.")

    async def _revoke(self, name: str, digest: str, *, account: str, keep_last_admin: bool = False) -> int:
        revoked: int = await self._store.run(
            _REVOKE,
            keys=[TOKEN(digest), TOKENS(account), ADMINS(), EXPIRIES(), ACCESS_VERSION()],
            args=[digest, name, int(keep_last_admin), BELL],
        )
        return revoked


def _new_view(name: str, account: str, scopes: Collection[Scope], lifetime: float | None = None) -> TokenView:
    now = clock.now()
    return TokenView(
        name=check_token_name(name),
        account=check_account(account),
        scopes=sorted(scopes),
        created_at=clock.rfc3339(now),
        expires_at=None if lifetime is None else clock.rfc3339(now + lifetime),
        used_at=None,
        expired=False,
    )


def _view(fields: dict[str, str], now: float) -> TokenView:
    expires_at = fields.get("expiresAt")
    return TokenView(
        name=fields["name"],
        account=fields["account"],
        scopes=[Scope(scope) for scope in fields["scopes"].split()],
        created_at=fields["createdAt"],
        expires_at=expires_at,
        used_at=fields.get("usedAt"),
        expired=expires_at is not None and clock.parse_rfc3339(expires_at) <= now,
    )
