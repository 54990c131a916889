"""Accounts: what each may use, and what it uses now."""

from collections.abc import Sequence

from msgspec import UNSET, Struct, UnsetType

from remuda.accounts.access import BELL
from remuda.accounts.model import check_account
from remuda.base import clock
from remuda.base.errors import InUse, Lost
from remuda.fleet.uses import usage_of
from remuda.keyspace.accounts import ACCESS_VERSION, ACCOUNT, ACCOUNTS, ADMINS, EXPIRIES, TOKEN, TOKENS
from remuda.keyspace.key import Name
from remuda.keyspace.metering import QUOTA_USE, QUOTAS
from remuda.store import Store, load_script

_DELETE = load_script(
    __file__,
    "delete.lua",
    keys=[ACCOUNT, TOKENS, ACCOUNTS, ADMINS, EXPIRIES, ACCESS_VERSION, QUOTAS, QUOTA_USE],
    args=["account", "token", "keep", "bell"],
)
_TOKEN_TEMPLATE = Name(TOKEN.template())


class AccountLimits(Struct):
    """What an account may use: sessions and connections at a time, and how many it may start in a minute.
    Null: any number."""

    sessions: int | None = None
    rate: int | None = None


class AccountView(Struct, rename="camel", kw_only=True):
    """An account: its limits, how many tokens it has, and how many sessions and connections; of those, `held`
    have a browser and the others wait for one."""

    name: str
    created_at: str | None
    limits: AccountLimits
    tokens: int
    in_use: int
    held: int


class AccountOverview(Struct):
    """What the dashboard shows of the account that it is limited to; null for operators, who see all."""

    account: AccountView | None


class Accounts:
    """All accounts."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def all(self) -> list[AccountView]:
        """Every account, by name."""
        return await self._views(sorted(await self._store.smembers(ACCOUNTS())))

    async def get(self, account: str) -> AccountView:
        """One account; Lost if there is none of this name."""
        if not await self._store.sismember(ACCOUNTS(), check_account(account)):
            raise await self._unknown(account)
        (view,) = await self._views([account])
        return view

    async def overview(self, limited_to: str | None) -> AccountOverview:
        """What an account may use and uses now, whether an operator has made it or not."""
        if limited_to is None:
            return AccountOverview(None)
        (view,) = await self._views([check_account(limited_to)])
        return AccountOverview(view)

    async def limits(self, account: str) -> AccountLimits:
        """What an account may use, whether an operator has made it or not."""
        return _limits(await self._store.hgetall(ACCOUNT(check_account(account))))

    async def _views(self, accounts: Sequence[str]) -> list[AccountView]:
        # All questions leave together.
        stored = [self._store.hgetall(ACCOUNT(account)) for account in accounts]
        tokens = [self._store.send("HLEN", TOKENS(account)) for account in accounts]
        usage = await usage_of(self._store, accounts)
        views = []
        for account, fields, count in zip(accounts, stored, tokens, strict=True):
            found = await fields
            views.append(
                AccountView(
                    name=account,
                    created_at=found.get("createdAt"),
                    limits=_limits(found),
                    tokens=await count,
                    in_use=usage[account].uses,
                    held=usage[account].held,
                )
            )
        return views

    async def change(
        self, account: str, *, sessions: int | UnsetType | None = UNSET, rate: int | UnsetType | None = UNSET
    ) -> AccountView:
        """The account with these limits, made if there is none; None removes a limit."""
        key = ACCOUNT(check_account(account))
        async with self._store.transaction() as transaction:
            transaction.sadd(ACCOUNTS(), account)
            transaction.hsetnx(key, "createdAt", clock.rfc3339())
            for name, limit in (("sessions", sessions), ("rate", rate)):
                if isinstance(limit, int):
                    transaction.hset(key, {name: limit})
                elif limit is None:
                    transaction.hdel(key, name)
            transaction.incr(ACCESS_VERSION())
            transaction.publish(BELL)
        (view,) = await self._views([account])
        return view

    async def delete(self, account: str, *, keep_last_admin: bool) -> list[str]:
        """Deletes an account with its tokens, whose names it gives. With `keep_last_admin`, InUse if no other
        account has an admin token that lasts."""
        deleted = await self._store.run(
            _DELETE,
            keys=[
                ACCOUNT(check_account(account)),
                TOKENS(account),
                ACCOUNTS(),
                ADMINS(),
                EXPIRIES(),
                ACCESS_VERSION(),
                QUOTAS(account),
                QUOTA_USE(account),
            ],
            args=[account, _TOKEN_TEMPLATE, int(keep_last_admin), BELL],
        )
        if deleted == 0:
            raise await self._unknown(account)
        if deleted == -1:
            raise InUse(
                f"The account {account!r} has the last admin token that does not expire; create another one "
                "first."
            )
        return sorted(deleted)

    async def _unknown(self, account: str) -> Lost:
        names = ", ".join(sorted(await self._store.smembers(ACCOUNTS())))
        known = f"the accounts are: {names}" if names else "there are none"
        return Lost(f"There is no account {account!r}; {known}.")


def _limits(stored: dict[str, str]) -> AccountLimits:
    return AccountLimits(*(int(stored[name]) if name in stored else None for name in ("sessions", "rate")))
