"""Tokens and accounts in Redis: every change is whole, and no token can be read back."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from remuda.accounts.accounts import AccountLimits, Accounts
from remuda.accounts.logins import Logins
from remuda.accounts.model import digest_of
from remuda.accounts.tokens import KEPT_EXPIRED, Tokens
from remuda.base import clock
from remuda.base.errors import AlreadyExists, InUse, InvalidArgument, Lost
from remuda.fleet.bell import bell_of
from remuda.fleet.origin import Scope
from remuda.keyspace.accounts import ACCESS_VERSION, ACCOUNTS, ADMINS, EXPIRIES, TOKEN, TOKENS
from remuda.keyspace.fleet import HELD, USES
from remuda.keyspace.key import Name
from remuda.store import Store
from remuda.store.census import take_census

USE = {Scope.USE}
ADMIN = {Scope.ADMIN}


async def test_a_token_is_stored_only_as_its_digest(store: Store) -> None:
    token, _ = await Tokens(store).create("ci", account="web", scopes=USE)
    cookie, _ = await Logins(store, lifetime=60).begin(token)

    for key in await store.send("KEYS", "*"):
        value = await store.send("DUMP", Name(key))
        for secret in (token, cookie):
            assert secret not in key
            assert secret not in value
    assert await store.exists(TOKEN(digest_of(token)))


async def test_a_token_makes_its_account_and_is_listed(store: Store) -> None:
    await Tokens(store).create("ci", account="web", scopes={Scope.USE, Scope.ARCHIVE}, lifetime=60)
    await Tokens(store).create("agent", account="web", scopes=USE)
    await Tokens(store).create("ci", account="app", scopes=USE)

    listed = await Tokens(store).of_all()

    assert [(each.account, each.name) for each in listed] == [("app", "ci"), ("web", "agent"), ("web", "ci")]
    ci = listed[2]
    assert ci.scopes == [Scope.ARCHIVE, Scope.USE]
    assert ci.expires_at is not None
    assert clock.parse_rfc3339(ci.expires_at) == pytest.approx(clock.now() + 60, abs=10)
    assert (ci.used_at, ci.expired) == (None, False)
    assert [each.name for each in await Accounts(store).all()] == ["app", "web"]


async def test_a_name_is_unique_in_its_account(store: Store) -> None:
    await Tokens(store).create("ci", account="web", scopes=USE)

    with pytest.raises(AlreadyExists, match="already has a token 'ci'"):
        await Tokens(store).create("ci", account="web", scopes=ADMIN)
    assert len(await Tokens(store).of_account("web")) == 1
    assert await store.scard(ADMINS()) == 0


@pytest.mark.parametrize(
    ("name", "account"), [("a/b", "web"), ("", "web"), ("ci", "We b"), ("ci", ""), ("*", "*")]
)
async def test_a_name_that_cannot_be_one_changes_nothing(store: Store, name: str, account: str) -> None:
    with pytest.raises(InvalidArgument):
        await Tokens(store).create(name, account=account, scopes=USE)
    assert await store.send("DBSIZE") == 0


async def test_every_change_counts_up_and_rings(store: Store) -> None:
    tokens, accounts, logins = Tokens(store), Accounts(store), Logins(store, lifetime=60)
    with store.subscribe(bell_of("access")) as rings:
        token, _ = await tokens.create("ci", account="web", scopes=USE)
        cookie, _ = await logins.begin(token)
        changes: list[Callable[[], Awaitable[object]]] = [
            lambda: tokens.create("other", account="web", scopes=USE),
            lambda: tokens.revoke("other", account="web", keep_last_admin=True),
            lambda: accounts.change("web", sessions=3),
            lambda: logins.end(digest_of(cookie)),
            lambda: accounts.delete("web", keep_last_admin=True),
        ]
        assert await rings.wait(5) == [""]
        for number, change in enumerate(changes, 2):
            await change()

            assert await rings.wait(5) == [""]
            assert await store.get(ACCESS_VERSION()) == str(number)


async def test_a_revoked_token_leaves_nothing(store: Store) -> None:
    token, _ = await Tokens(store).create("ci", account="web", scopes=USE, lifetime=60)

    await Tokens(store).revoke("ci", account="web", keep_last_admin=True)

    assert not await store.exists(TOKEN(digest_of(token)), TOKENS("web"), EXPIRIES())
    with pytest.raises(Lost, match="it has none"):
        await Tokens(store).revoke("ci", account="web", keep_last_admin=True)


async def test_revoking_a_wrong_name_says_which_there_are(store: Store) -> None:
    await Tokens(store).create("ci", account="web", scopes=USE)
    await Tokens(store).create("agent", account="web", scopes=USE)

    with pytest.raises(Lost, match="no token 'nightly'; its tokens are: agent, ci"):
        await Tokens(store).revoke("nightly", account="web", keep_last_admin=True)


async def test_the_last_admin_token_that_lasts_is_kept_unless_no_token_is_needed(store: Store) -> None:
    tokens = Tokens(store)
    await tokens.create("one", account="ops", scopes=ADMIN)
    await tokens.create("two", account="ops", scopes=ADMIN)
    await tokens.create("short", account="ops", scopes=ADMIN, lifetime=60)
    await tokens.revoke("one", account="ops", keep_last_admin=True)

    with pytest.raises(InUse, match="last admin token"):
        await tokens.revoke("two", account="ops", keep_last_admin=True)
    with pytest.raises(InUse, match="last admin token"):
        await Accounts(store).delete("ops", keep_last_admin=True)
    await tokens.revoke("two", account="ops", keep_last_admin=False)
    assert not await store.exists(ADMINS())


async def test_of_many_who_revoke_a_last_admin_token_none_succeeds_with_the_last(store: Store) -> None:
    tokens = Tokens(store)
    names = [f"admin-{number}" for number in range(5)]
    for name in names:
        await tokens.create(name, account="ops", scopes=ADMIN)

    revoking = [tokens.revoke(name, account="ops", keep_last_admin=True) for name in names]
    outcomes = await asyncio.gather(*revoking, return_exceptions=True)

    assert [isinstance(each, InUse) for each in outcomes].count(True) == 1
    assert await store.scard(ADMINS()) == 1


async def test_an_expired_token_is_listed_for_a_week_and_then_forgotten(store: Store) -> None:
    tokens = Tokens(store)
    await tokens.create("fresh", account="web", scopes=USE, lifetime=60)
    await tokens.create("over", account="web", scopes=USE, lifetime=-60)
    await tokens.create("old", account="web", scopes=USE, lifetime=-KEPT_EXPIRED - 60)
    before = {each.name: each.expired for each in await tokens.of_account("web")}

    counts = await tokens.forget_expired()

    assert before == {"fresh": False, "over": True, "old": True}
    assert counts["tokens_forgotten"] == 1
    assert [each.name for each in await tokens.of_account("web")] == ["fresh", "over"]
    assert await store.zcard(EXPIRIES()) == 2


async def test_limits_are_set_changed_and_removed(store: Store) -> None:
    accounts = Accounts(store)

    first = await accounts.change("web", sessions=10, rate=60)
    second = await accounts.change("web", rate=None)

    assert first.limits == AccountLimits(10, 60)
    assert second.limits == AccountLimits(10, None)
    assert second.created_at == first.created_at


async def test_an_account_shows_what_it_uses(store: Store) -> None:
    await Accounts(store).change("web")
    now = clock.now_ms()
    await store.zadd(USES("web"), {"one": now + 60_000, "two": now + 60_000, "over": now - 1})
    await store.zadd(HELD("web"), {"one": now + 60_000})

    (account,) = await Accounts(store).all()

    assert (account.in_use, account.held, account.tokens) == (2, 1, 0)


async def test_a_deleted_account_takes_its_tokens_along(store: Store) -> None:
    for name in ("ci", "agent"):
        await Tokens(store).create(name, account="web", scopes=USE, lifetime=60)
    await Tokens(store).create("other", account="app", scopes=USE)

    assert await Accounts(store).delete("web", keep_last_admin=True) == ["agent", "ci"]

    assert [each.account for each in await Tokens(store).of_all()] == ["app"]
    assert await store.smembers(ACCOUNTS()) == ["app"]
    assert len(await store.send("KEYS", "remuda:token:*")) == 1
    assert not await store.exists(EXPIRIES())
    with pytest.raises(Lost, match="no account 'web'; the accounts are: app"):
        await Accounts(store).delete("web", keep_last_admin=True)


async def test_all_that_is_written_is_declared(store: Store) -> None:
    token, _ = await Tokens(store).create("ci", account="web", scopes=ADMIN, lifetime=60)
    await Tokens(store).create("admin", account="web", scopes=ADMIN)
    await Accounts(store).change("web", sessions=1, rate=1)
    await Logins(store, lifetime=30 * 86400).begin(token)

    assert await take_census(store) == []
