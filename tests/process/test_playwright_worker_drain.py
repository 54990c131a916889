"""Workers that leave: when they are told to, by whom, and whom they wait for.

That a signal lets clients finish is shown where the rest of a worker's life is, in test_playwright_worker.py.
"""

import signal
from pathlib import Path

from remuda.keyspace import playwright as keys
from remuda.store import Store
from waiting import eventually
from workers import (
    entries,
    finishes,
    has_beaten_since,
    is_draining,
    only_entry,
    running_worker,
    status_of,
    stock_client,
)


async def tell_to_shut_down(store: Store, key: str) -> str:
    """Does what a proxy does; the command's key."""
    command = key.replace("worker:", "worker:cmd:", 1)
    await store.send("SET", command, "shutdown", "EX", 60)
    return command


async def test_a_shutdown_command_is_obeyed_at_the_next_beat(store: Store, tmp_path: Path) -> None:
    async with running_worker(store, tmp_path) as worker:
        (key,) = await entries(store)

        await tell_to_shut_down(store, key)

        await finishes(worker, store)


async def test_a_call_over_the_channel_makes_it_faster(store: Store, tmp_path: Path) -> None:
    beats = {"HEARTBEAT_INTERVAL": "1000", "REDIS_KEY_TTL": "3000"}
    async with running_worker(store, tmp_path, **beats) as worker:
        (key,) = await entries(store)
        command = await tell_to_shut_down(store, key)

        await store.send("PUBLISH", command, "shutdown")

        await finishes(worker, store)


async def test_a_call_without_a_command_means_nothing(store: Store, tmp_path: Path) -> None:
    async with running_worker(store, tmp_path) as worker:
        ((key, entry),) = (await entries(store)).items()

        await store.send("PUBLISH", key.replace("worker:", "worker:cmd:", 1), "shutdown")

        await eventually(lambda: has_beaten_since(store, entry))
        assert await status_of(store) == "available"
        assert not worker.has_ended


async def test_a_second_signal_ends_a_drain_at_once(store: Store, tmp_path: Path) -> None:
    async with (
        running_worker(store, tmp_path) as worker,
        stock_client((await only_entry(store))["wsEndpoint"]) as (connection, _),
    ):
        worker.process.send_signal(signal.SIGTERM)
        await eventually(lambda: is_draining(store))

        worker.process.send_signal(signal.SIGTERM)

        await finishes(worker, store)
        await eventually(lambda: not connection.is_connected())


async def test_a_drain_has_a_limit(store: Store, tmp_path: Path) -> None:
    async with (
        running_worker(store, tmp_path, REMUDA_PLAYWRIGHT_DRAIN="1") as worker,
        stock_client((await only_entry(store))["wsEndpoint"]),
    ):
        worker.process.send_signal(signal.SIGTERM)

        await finishes(worker, store)


async def test_a_drain_waits_for_whom_the_fleet_has_just_sent(store: Store, tmp_path: Path) -> None:
    async with running_worker(store, tmp_path) as worker:
        ((key, entry),) = (await entries(store)).items()
        field = key.removeprefix("worker:")
        await store.hincrby(keys.ACTIVE_CONNECTIONS(), field, 1)

        worker.process.send_signal(signal.SIGTERM)
        await eventually(lambda: is_draining(store))
        await eventually(lambda: has_beaten_since(store, entry))
        assert not worker.has_ended
        await store.hincrby(keys.ACTIVE_CONNECTIONS(), field, -1)

        await finishes(worker, store)


async def test_a_count_below_zero_ends_nobodys_session(store: Store, tmp_path: Path) -> None:
    async with running_worker(store, tmp_path) as worker:
        ((key, entry),) = (await entries(store)).items()
        async with stock_client(entry["wsEndpoint"]) as (_, page):
            await store.hset(keys.ACTIVE_CONNECTIONS(), {key.removeprefix("worker:"): -2})

            worker.process.send_signal(signal.SIGTERM)
            await eventually(lambda: is_draining(store))
            told = await only_entry(store)
            await eventually(lambda: has_beaten_since(store, told))

            assert await page.title() == "Pasture"
            assert not worker.has_ended
