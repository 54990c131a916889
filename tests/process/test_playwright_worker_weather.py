"""Workers without Redis, or without room on their disk: sessions go on, and so does a drain."""

import asyncio
import signal
from pathlib import Path

from disks import FLOOR, disk, filled
from herds import DEADLINE
from remuda.base import clock
from remuda.base.errors import StoreUnavailable
from remuda.keyspace.playwright import PLAYWRIGHT_OBSTACLES
from remuda.store import Store
from servers import Server
from waiting import eventually
from workers import PAGE, entries, finishes, is_draining, only_entry, running_worker, stock_client


async def entries_if_there(store: Store) -> dict[str, dict[str, str]]:
    """The registry; empty while Redis is away."""
    try:
        return await entries(store)
    except StoreUnavailable:
        return {}


async def test_a_session_goes_on_while_redis_is_away(server: Server, tmp_path: Path) -> None:
    async with Store(server.url) as store, running_worker(store, tmp_path, REDIS_KEY_TTL="3") as worker:
        # A machine that is very busy may let a key run out that short-lived.
        before = await eventually(lambda: entries(store), DEADLINE)
        (entry,) = before.values()
        await goes_on_without(
            server, entry["wsEndpoint"], for_seconds=6
        )  # Twice the time for which Redis believes it alive.

        after = await eventually(lambda: entries_if_there(store), DEADLINE)
        assert after.keys() == before.keys()
        assert [entry["status"] for entry in after.values()] == ["available"]
        assert not worker.has_ended


async def goes_on_without(server: Server, endpoint: str, *, for_seconds: float) -> None:
    """A session lives through an absence of Redis and its return."""
    async with stock_client(endpoint) as (_, page):
        server.kill()
        away_until = clock.monotonic() + for_seconds
        while clock.monotonic() < away_until:
            await page.goto(PAGE)
            assert await page.title() == "Pasture"
            await asyncio.sleep(0.1)  # Loading without a pause would keep a processor busy.
        server.start()
        await page.goto(PAGE)
        assert await page.title() == "Pasture"


async def test_a_drain_survives_the_loss_of_all_data(server: Server, tmp_path: Path) -> None:
    async with Store(server.url) as store, running_worker(store, tmp_path) as worker:
        async with stock_client((await only_entry(store))["wsEndpoint"]) as (_, page):
            worker.process.send_signal(signal.SIGTERM)
            await eventually(lambda: is_draining(store))

            server.kill()
            server.start()

            # Registered again, and not as available, not even for a moment: this is the first that is seen.
            (entry,) = (await eventually(lambda: entries_if_there(store), DEADLINE)).values()
            assert entry["status"] == "draining"
            await page.goto(PAGE)
            assert await page.title() == "Pasture"
            assert not worker.has_ended
        await finishes(worker, store)


async def test_a_drain_ends_also_without_redis(server: Server, tmp_path: Path) -> None:
    async with Store(server.url) as store, running_worker(store, tmp_path) as worker:
        directory = worker.directory

        server.kill()
        worker.process.send_signal(signal.SIGTERM)

        assert await worker.ends() == 0
        assert not directory.exists()


async def test_a_worker_without_room_on_its_disk_is_not_offered(server: Server, tmp_path: Path) -> None:
    async def has_status(status: str) -> bool:
        return (await only_entry(store))["status"] == status

    with disk() as place:
        environ = {"TMPDIR": str(place), "REMUDA_MIN_FREE_MEGABYTES": str(FLOOR)}
        async with Store(server.url) as store, running_worker(store, tmp_path, **environ) as worker:
            assert await has_status("available")
            async with stock_client((await only_entry(store))["wsEndpoint"]) as (_, page):
                with filled(place, free=(FLOOR - 5) * 1_000_000):
                    await eventually(lambda: has_status("draining"), DEADLINE)
                    (told,) = (await store.hgetall(PLAYWRIGHT_OBSTACLES("chromium"))).values()
                    assert await page.title() == "Pasture"

                await eventually(lambda: has_status("available"), DEADLINE)
            assert f"low disk space: {place}" in told
            assert not worker.has_ended
