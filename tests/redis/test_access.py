"""What a gateway remembers of tokens: right at any moment, also when bells are lost or Redis is away."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

import servers
from remuda.accounts import access as access_module
from remuda.accounts.access import KNOWN_WITHIN, MAX_UNKNOWN, PAUSE, Access
from remuda.accounts.accounts import Accounts
from remuda.accounts.logins import Logins
from remuda.accounts.model import EVERYTHING, Grant, digest_of, new_token
from remuda.accounts.tokens import Tokens
from remuda.base import clock
from remuda.base.errors import StoreUnavailable, Unauthorized
from remuda.fleet.origin import Scope
from remuda.keyspace.accounts import ACCESS_VERSION, TOKEN
from remuda.keyspace.key import ChannelName
from remuda.store import Store
from waiting import eventually

USE = frozenset({Scope.USE})


@asynccontextmanager
async def running(access: Access) -> AsyncIterator[Access]:
    task = asyncio.create_task(access.run(), name="keep access fresh")
    try:
        yield access
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def new(store: Store, name: str = "ci", *, account: str = "web", lifetime: float | None = None) -> str:
    token, _ = await Tokens(store).create(name, account=account, scopes=USE, lifetime=lifetime)
    return token


async def find(access: Access, token: str) -> Grant:
    found = access.find(token)
    return await found if inspect.isawaitable(found) else found


def is_refused(access: Access, token: str) -> bool:
    """Whether the token is refused, as far as is remembered."""
    try:
        found = access.find(token)
    except Unauthorized:
        return True
    if inspect.iscoroutine(found):
        found.close()
        return True
    return False


def pass_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Sets the clock of this process forward."""
    now = clock.now
    monkeypatch.setattr(clock, "now", lambda: now() + seconds)


async def requests_of(store: Store) -> int:
    """Commands that Redis has done so far."""
    info = await store.send("INFO", "commandstats")
    lines = [line for line in str(info).splitlines() if line.startswith(("cmdstat_eval", "cmdstat_hget"))]
    return sum(int(line.split("calls=")[1].split(",")[0]) for line in lines)


async def test_a_token_grants_its_account_and_scopes(store: Store) -> None:
    token = await new(store)

    grant = await find(Access(store, is_on=True), token)

    assert (grant.account, grant.token, grant.scopes, grant.login) == ("web", "ci", USE, "")


async def test_where_no_token_is_needed_anything_grants_everything(store: Store) -> None:
    access = Access(store, is_on=False)

    assert access.find("") is EVERYTHING
    assert access.find("anything") is EVERYTHING


async def test_a_remembered_token_costs_redis_nothing(store: Store) -> None:
    access = Access(store, is_on=True)
    token = await new(store)
    grant = await find(access, token)
    before = await requests_of(store)

    assert all(access.find(token) is grant for _ in range(100))
    assert await requests_of(store) == before


async def test_a_wrong_token_is_asked_for_once(store: Store) -> None:
    access = Access(store, is_on=True)
    wrong = new_token()
    with pytest.raises(Unauthorized):
        await find(access, wrong)
    before = await requests_of(store)

    for _ in range(100):
        with pytest.raises(Unauthorized):
            access.find(wrong)
    assert await requests_of(store) == before


@pytest.mark.parametrize(
    "text", ["", "rmd_", "x" * 10_000, "rmd_\ud800", "rmd_" + "é" * 43, "rmd_" + "*" * 43]
)
async def test_what_cannot_be_a_token_is_refused_without_a_question(store: Store, text: str) -> None:
    access = Access(store, is_on=True)
    before = await requests_of(store)

    with pytest.raises(Unauthorized):
        access.find(text)
    assert await requests_of(store) == before


async def test_guessing_takes_no_more_memory_than_a_bound(store: Store) -> None:
    access = Access(store, is_on=True)
    for _ in range(0, MAX_UNKNOWN + 500, 100):
        guesses = [find(access, new_token()) for _ in range(100)]
        assert all(
            isinstance(each, Unauthorized) for each in await asyncio.gather(*guesses, return_exceptions=True)
        )

    assert len(access._unknown) == MAX_UNKNOWN
    assert not access._known


async def test_a_token_that_is_made_later_is_known_although_it_was_refused(store: Store) -> None:
    """As the admin token of a herd is, whose data were lost and which registers it again."""
    token = new_token()
    async with running(Access(store, is_on=True)) as access:
        with pytest.raises(Unauthorized):
            await find(access, token)

        await Tokens(store).register_first(token, "admin", account="default")

        async def is_admin() -> bool:
            try:
                return (await find(access, token)).may(Scope.ADMIN)
            except Unauthorized:
                return False

        await eventually(is_admin)


async def test_a_revoked_token_is_refused_as_soon_as_the_bell_is_heard(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_module, "LOOK_EVERY", 1000.0)
    token, other = await new(store), await new(store, "other")
    async with running(Access(store, is_on=True)) as access:
        await find(access, token)
        await find(access, other)
        epoch = access.epoch

        await Tokens(store).revoke("ci", account="web", keep_last_admin=True)

        await eventually(lambda: is_refused(access, token))
        assert access.epoch is not epoch
        assert not is_refused(access, other)


async def test_a_revoked_token_is_refused_although_the_bell_is_lost(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_module, "BELL", ChannelName("remuda:bell:nobody"))
    token = await new(store)
    async with running(Access(store, is_on=True)) as access:
        await find(access, token)

        await Tokens(store).revoke("ci", account="web", keep_last_admin=True)

        await eventually(lambda: is_refused(access, token))


async def test_the_tokens_of_a_deleted_account_are_refused(store: Store) -> None:
    token = await new(store)
    async with running(Access(store, is_on=True)) as access:
        await find(access, token)

        await Accounts(store).delete("web", keep_last_admin=True)

        await eventually(lambda: is_refused(access, token))


async def test_a_look_up_that_a_revocation_overtakes_is_made_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await new(store)
    access = Access(store, is_on=True)
    has_read, may_go_on = asyncio.Event(), asyncio.Event()
    recall = access._recall

    async def recall_slowly(digests: Sequence[bytes]) -> list[Any]:
        found: list[Any] = await recall(digests)
        has_read.set()
        await may_go_on.wait()
        return found

    monkeypatch.setattr(access, "_recall", recall_slowly)
    looking = asyncio.create_task(find(access, token), name="look up")
    await has_read.wait()

    await Tokens(store).revoke("ci", account="web", keep_last_admin=True)
    await access._look()
    may_go_on.set()

    with pytest.raises(Unauthorized):
        await looking
    assert is_refused(access, token)


def test_a_change_is_known_within_half_a_second() -> None:
    assert KNOWN_WITHIN == 0.5
    assert access_module.LOOK_EVERY + PAUSE <= KNOWN_WITHIN


async def test_a_token_expires_in_time_also_while_redis_is_away(
    server: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Store(server.url) as store:
        token = await new(store, lifetime=60)
        async with running(Access(store, is_on=True)) as access:
            await find(access, token)
            epoch = access.epoch
            server.kill()

            pass_time(monkeypatch, 61)

            await eventually(lambda: is_refused(access, token))
            await eventually(lambda: access.epoch is not epoch)


async def test_what_is_remembered_stays_good_while_redis_is_away(server: servers.Server) -> None:
    async with Store(server.url, timeout=servers.PATIENCE) as store:
        token, unseen = await new(store), await new(store, "unseen")
        async with running(Access(store, is_on=True)) as access:
            grant = await find(access, token)
            server.kill()
            await eventually(lambda: not store.is_connected)

            # It does not know, which is no reason to say that the token is wrong.
            with pytest.raises(StoreUnavailable):
                await find(access, unseen)
            assert access.find(token) is grant


async def test_after_an_absence_of_redis_a_change_is_known_although_the_counter_is_the_same(
    server: servers.Server,
) -> None:
    async with Store(server.url) as store:
        token = await new(store)
        async with running(Access(store, is_on=True)) as access:
            await find(access, token)
            await eventually(lambda: access._seen is not None)
            version = await store.get(ACCESS_VERSION())
            # As in a failover to a replica that was behind.
            server.kill()
            await eventually(lambda: not store.is_connected)
            server.start()
            await store.set(ACCESS_VERSION(), version or "0")

            await eventually(lambda: is_refused(access, token))


async def test_the_last_use_is_noted_soon(store: Store) -> None:
    token = await new(store)
    async with running(Access(store, is_on=True)) as access:
        await find(access, token)

        async def used_at() -> str | None:
            return (await Tokens(store).of_account("web"))[0].used_at

        noted = await eventually(used_at)
        assert noted is not None
        assert abs(clock.parse_rfc3339(noted) - clock.now()) < 5


async def test_noting_the_last_use_does_not_bring_a_revoked_token_back(store: Store) -> None:
    token = await new(store)
    access = Access(store, is_on=True)
    await find(access, token)
    await Tokens(store).revoke("ci", account="web", keep_last_admin=True)

    await access._note_uses()

    assert not await store.exists(TOKEN(digest_of(token)))


async def test_uses_that_could_not_be_noted_are_noted_later(server: servers.Server) -> None:
    async with Store(server.url, timeout=servers.PATIENCE) as store:
        token = await new(store)
        access = Access(store, is_on=True)
        await find(access, token)
        server.pause()
        with pytest.raises(StoreUnavailable):
            await access._note_uses()

        server.resume()
        await eventually(lambda: store.is_connected)
        await access._note_uses()

        assert (await Tokens(store).of_account("web"))[0].used_at is not None


async def test_a_login_grants_what_its_token_does(store: Store) -> None:
    cookie, _ = await Logins(store, lifetime=60).begin(await new(store))

    grant = await find(Access(store, is_on=True), cookie)

    assert (grant.account, grant.token, grant.scopes) == ("web", "ci", USE)
    assert grant.login == digest_of(cookie)


async def test_a_login_ends_with_its_token(store: Store) -> None:
    cookie, _ = await Logins(store, lifetime=60).begin(await new(store))
    async with running(Access(store, is_on=True)) as access:
        await find(access, cookie)

        await Tokens(store).revoke("ci", account="web", keep_last_admin=True)

        await eventually(lambda: is_refused(access, cookie))


async def test_a_login_ends_on_logout_and_its_token_does_not(store: Store) -> None:
    token = await new(store)
    logins = Logins(store, lifetime=60)
    cookie, _ = await logins.begin(token)
    async with running(Access(store, is_on=True)) as access:
        await find(access, cookie)
        await find(access, token)

        await logins.end(digest_of(cookie))

        await eventually(lambda: is_refused(access, cookie))
        assert not is_refused(access, token)


async def test_a_login_ends_after_its_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    cookie, _ = await Logins(store, lifetime=60).begin(await new(store))
    async with running(Access(store, is_on=True)) as access:
        await find(access, cookie)

        pass_time(monkeypatch, 61)

        await eventually(lambda: is_refused(access, cookie))


async def test_no_login_is_given_for_a_wrong_an_expired_or_a_cookies_token(store: Store) -> None:
    logins = Logins(store, lifetime=60)
    cookie, _ = await logins.begin(await new(store))
    expired = await new(store, "short", lifetime=-1.0)

    for token in (new_token(), "", "x", cookie, expired):
        with pytest.raises(Unauthorized):
            await logins.begin(token)


async def test_a_prefix_separates_two_herds(redis_url: str) -> None:
    async with Store(redis_url, prefix="one:") as one, Store(redis_url, prefix="two:") as two:
        token = await new(one)

        assert (await find(Access(one, is_on=True), token)).account == "web"
        with pytest.raises(Unauthorized):
            await find(Access(two, is_on=True), token)
