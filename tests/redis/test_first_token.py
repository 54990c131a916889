"""The admin token that the first start makes: exactly one, kept where only its owner can read it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import servers
from configs import make_config
from remuda.accounts.access import Access
from remuda.accounts.first import ensure_admin_token, keep_admin_token, read_token
from remuda.accounts.model import Grant, digest_of, may_be_token
from remuda.accounts.tokens import Tokens
from remuda.base.config import Config
from remuda.fleet.origin import Scope
from remuda.gateway.role import Gateway
from remuda.keyspace.accounts import ADMINS, TOKEN
from remuda.store import Store
from waiting import eventually


def config(data: Path, **options: object) -> Config:
    return make_config(data=data, auth="on", **options)


@asynccontextmanager
async def running(gateway: Gateway) -> AsyncIterator[None]:
    await gateway.start()
    serving = asyncio.create_task(gateway.serve(), name="gateway")
    try:
        yield
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await gateway.stop()


async def grant_of(store: Store, token: str) -> Grant:
    found = Access(store, is_on=True).find(token)
    return found if isinstance(found, Grant) else await found


async def test_the_first_start_makes_prints_and_keeps_an_admin_token(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"

    await ensure_admin_token(store, config(data))

    file = data / "admin.token"
    token = file.read_text().strip()
    grant = await grant_of(store, token)
    assert (grant.account, grant.token, grant.scopes) == ("default", "admin", frozenset({Scope.ADMIN}))
    assert (file.stat().st_mode & 0o777, data.stat().st_mode & 0o777) == (0o600, 0o700)
    assert capsys.readouterr().out.splitlines()[-1] == token
    assert [each.name for each in data.iterdir()] == ["admin.token"]


async def test_a_later_start_makes_and_prints_nothing(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await ensure_admin_token(store, config(tmp_path))
    before = (tmp_path / "admin.token").read_text()
    capsys.readouterr()

    await ensure_admin_token(store, config(tmp_path))

    assert (tmp_path / "admin.token").read_text() == before
    assert capsys.readouterr().out == ""
    assert len(await Tokens(store).of_all()) == 1


@pytest.mark.parametrize("options", [{"auth": "off"}, {"auth": "auto"}, {"insecure": True, "auth": "on"}])
async def test_where_no_token_is_needed_none_is_made(
    store: Store, tmp_path: Path, options: dict[str, object]
) -> None:
    await ensure_admin_token(store, make_config(data=tmp_path, **options))

    assert not list(tmp_path.iterdir())
    assert await store.send("DBSIZE") == 0


async def test_many_gateways_of_one_machine_make_one_token(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await asyncio.gather(*(ensure_admin_token(store, config(tmp_path)) for _ in range(5)))

    token = read_token(tmp_path / "admin.token")
    assert capsys.readouterr().out.count("rmd_") == 1
    assert (await grant_of(store, token)).may(Scope.ADMIN)


async def test_of_many_machines_one_keeps_a_token_and_the_others_no_file(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machines = [tmp_path / str(number) for number in range(5)]

    await asyncio.gather(*(ensure_admin_token(store, config(each)) for each in machines))

    (token,) = [found for each in machines if (found := read_token(each / "admin.token"))]
    assert capsys.readouterr().out.splitlines()[-1] == token
    assert (await grant_of(store, token)).may(Scope.ADMIN)


async def test_after_a_loss_of_data_the_kept_token_is_registered_again(
    store: Store, redis_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await ensure_admin_token(store, config(tmp_path))
    token = read_token(tmp_path / "admin.token")
    servers.empty(redis_url)
    capsys.readouterr()

    await ensure_admin_token(store, config(tmp_path))

    assert read_token(tmp_path / "admin.token") == token
    assert (await grant_of(store, token)).may(Scope.ADMIN)
    said = capsys.readouterr().out
    assert "registered again" in said
    assert token not in said


async def test_while_the_herd_runs_a_kept_token_is_back_within_seconds(
    store: Store, redis_url: str, tmp_path: Path
) -> None:
    kept, other = config(tmp_path / "kept", port=0), config(tmp_path / "other", port=0)
    async with running(Gateway(store, kept)), running(Gateway(store, other)):
        token = read_token(tmp_path / "kept" / "admin.token")
        assert (await grant_of(store, token)).may(Scope.ADMIN)

        servers.empty(redis_url)

        await eventually(lambda: store.exists(TOKEN(digest_of(token))))
        assert [each.name for each in await Tokens(store).of_all()] == ["admin"]
    assert not read_token(tmp_path / "other" / "admin.token")


async def test_a_token_that_was_kept_nowhere_is_replaced_while_the_herd_runs(
    store: Store, redis_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await ensure_admin_token(store, config(tmp_path))
    (tmp_path / "admin.token").unlink()
    keeping = asyncio.create_task(keep_admin_token(store, config(tmp_path), every=0.05))

    servers.empty(redis_url)

    await eventually(lambda: store.scard(ADMINS()))
    await eventually(lambda: is_good(store, tmp_path))
    assert capsys.readouterr().out.count("shown only once") == 2
    keeping.cancel()


async def is_good(store: Store, data: Path) -> bool:
    token = read_token(data / "admin.token")
    return bool(token) and (await grant_of(store, token)).may(Scope.ADMIN)


async def test_a_revoked_admin_token_does_not_come_back(store: Store, tmp_path: Path) -> None:
    await ensure_admin_token(store, config(tmp_path))
    revoked = read_token(tmp_path / "admin.token")
    await Tokens(store).revoke("admin", account="default", keep_last_admin=False)

    await ensure_admin_token(store, config(tmp_path))

    assert not await store.exists(TOKEN(digest_of(revoked)))
    assert (await grant_of(store, read_token(tmp_path / "admin.token"))).may(Scope.ADMIN)


async def test_a_herd_whose_tokens_are_all_for_use_gets_an_admin_token(store: Store, tmp_path: Path) -> None:
    """As one that was used on loopback before, where the API is open."""
    await Tokens(store).create("admin", account="default", scopes={Scope.USE})

    await ensure_admin_token(store, config(tmp_path))

    grant = await grant_of(store, read_token(tmp_path / "admin.token"))
    assert grant.may(Scope.ADMIN)
    assert grant.token.startswith("admin-")


async def test_where_nothing_can_be_kept_the_token_is_only_printed(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").write_text("a file is in the way")

    await ensure_admin_token(store, config(tmp_path / "data"))

    token = capsys.readouterr().out.splitlines()[-1]
    assert may_be_token(token)
    assert (await grant_of(store, token)).may(Scope.ADMIN)


async def test_a_gateway_makes_it_when_it_starts(store: Store, tmp_path: Path) -> None:
    gateway = Gateway(store, config(tmp_path, port=0))
    await gateway.start()
    try:
        assert read_token(tmp_path / "admin.token")
    finally:
        await gateway.stop()
