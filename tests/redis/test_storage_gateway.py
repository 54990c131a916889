"""Artifacts through the front door: found by their storage's id, wherever it listens."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from configs import make_config
from remuda.base.errors import Lost, UpstreamUnavailable
from remuda.base.ids import new_id
from remuda.fleet.relay import Address
from remuda.gateway import lookup
from remuda.gateway.lookup import RedisDirectory
from remuda.gateway.role import Gateway
from remuda.keyspace import metrics
from remuda.storage.model import StorageId
from remuda.store import Store
from storages import fresh_session, running_storage, write_file
from web_states import running

SESSION = fresh_session()


@asynccontextmanager
async def front_door(store: Store) -> AsyncIterator[aiohttp.ClientSession]:
    gateway = Gateway(store, make_config(port=0))
    async with running(gateway), aiohttp.ClientSession(f"http://{gateway.address}") as client:
        yield client


async def found(directory: RedisDirectory, storage: StorageId) -> Address:
    place = directory.find_storage(storage)
    return place if isinstance(place, Address) else await place


async def test_an_artifact_comes_through_the_front_door_in_parts_and_for_any_page(
    store: Store, tmp_path: Path
) -> None:
    write_file(tmp_path, SESSION, "video.m4s", b"0123456789")
    async with running_storage(store, tmp_path) as storage, front_door(store) as client:
        asked = client.get(
            f"/storage/{storage.storage_id}/{SESSION}/video.m4s",
            headers={"Range": "bytes=2-4", "Origin": "https://player.example"},
        )

        async with asked as answer:
            assert (answer.status, await answer.read()) == (206, b"234")
            assert answer.headers["Access-Control-Allow-Origin"] == "*"


async def test_two_storages_are_told_apart(store: Store, tmp_path: Path) -> None:
    async with (
        running_storage(store, tmp_path / "one") as one,
        running_storage(store, tmp_path / "two") as two,
        front_door(store) as client,
    ):
        write_file(tmp_path / "two", SESSION)
        for storage, status in ((one, 404), (two, 200)):
            async with client.get(f"/storage/{storage.storage_id}/{SESSION}/a.log") as answer:
                assert answer.status == status


async def test_a_storage_that_never_was_is_lost_at_once(store: Store) -> None:
    async with asyncio.timeout(lookup.WAIT_FOR / 2):
        with pytest.raises(Lost):
            await found(RedisDirectory(store), StorageId(new_id()))


async def test_a_storage_that_has_just_come_is_found_before_its_first_sweep(
    store: Store, tmp_path: Path
) -> None:
    async with running_storage(store, tmp_path, sweep_every=3600.0) as storage:
        await store.delete(metrics.METRICS_STORAGE_TOTAL())

        assert str(await found(RedisDirectory(store), storage.storage_id)) == storage.address


async def test_a_storage_that_restarts_is_waited_for(store: Store, tmp_path: Path) -> None:
    async with running_storage(store, tmp_path) as storage:
        pass
    directory = RedisDirectory(store)
    finding = asyncio.create_task(found(directory, storage.storage_id))

    async with running_storage(store, tmp_path) as again:
        assert str(await finding) == again.address


async def test_a_storage_that_stays_away_is_unavailable(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "WAIT_FOR", 0.05)
    async with running_storage(store, tmp_path) as storage:
        pass

    with pytest.raises(UpstreamUnavailable, match=storage.storage_id):
        await found(RedisDirectory(store), storage.storage_id)


async def test_a_storage_that_refuses_is_looked_up_again(store: Store, tmp_path: Path) -> None:
    directory = RedisDirectory(store)
    async with running_storage(store, tmp_path) as storage:
        address = await found(directory, storage.storage_id)
    directory.forget(address, may_run=False)

    async with running_storage(store, tmp_path) as again:
        assert str(await found(directory, storage.storage_id)) == again.address
