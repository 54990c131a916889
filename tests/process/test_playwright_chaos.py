"""Whatever is killed, the counters tell the truth: real gateways, workers, browsers, and a Redis to kill."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Error, Playwright

from herds import DEADLINE, REMUDA
from processes import are_gone
from registered_workers import active, lifetime
from remuda.base.processes import die_with_parent
from remuda.fleet.line import who_waits
from remuda.fleet.role import running_roles
from remuda.keyspace.fleet import LINE_LEASES
from remuda.keyspace.playwright import PLAYWRIGHT_CONNECTIONS, PLAYWRIGHT_LEASES
from remuda.store import Store
from remuda.store.census import take_census
from servers import Server
from waiting import eventually
from workers import RunningWorker, browser_process, entries, processes_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

LEASE = 2
# A short lease, so that a test need not wait for it; short beats, so that workers are soon missed.
ENVIRON = {"REMUDA_PLAYWRIGHT_LEASE": str(LEASE), "HEARTBEAT_INTERVAL": "1", "REDIS_KEY_TTL": "3"}


@dataclass
class Fleet:
    """Gateways and workers that share a Redis."""

    server: Server
    store: Store
    home: Path
    stack: AsyncExitStack

    async def start_worker(self, *args: str) -> RunningWorker:
        before = len(await entries(self.store))
        home = self.home / f"worker-{before}"
        home.mkdir(exist_ok=True)
        worker = RunningWorker(self.server.url, home, *args, environ=ENVIRON)
        self.stack.callback(worker.process.wait, DEADLINE)
        self.stack.callback(worker.process.kill)
        await eventually(lambda: self._has_workers(before + 1), DEADLINE)
        return worker

    async def _has_workers(self, count: int) -> bool:
        return len(await entries(self.store)) >= count

    async def start_gateway(self, **environ: str) -> "RunningGateway":
        before = await self._gateways()
        process = subprocess.Popen(
            [*REMUDA, "run", "gateway", "--redis", self.server.url, "--port", "0"],
            env={**os.environ, **ENVIRON, **environ},
            cwd=self.home,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
        self.stack.callback(process.wait, DEADLINE)
        self.stack.callback(process.kill)

        async def new_ones() -> list[str]:
            return [address for address in await self._gateways() if address not in before]

        (address,) = await eventually(new_ones, DEADLINE)
        return RunningGateway(process, f"ws://{address}/")

    async def _gateways(self) -> list[str]:
        roles = await running_roles(self.store)
        return [each["address"] for each in roles if each["name"] == "gateway"]


@dataclass
class RunningGateway:
    process: subprocess.Popen[bytes]
    url: str


@pytest_asyncio.fixture(loop_scope="session")
async def fleet(server: Server, tmp_path: Path) -> AsyncIterator[Fleet]:
    async with Store(server.url) as store, AsyncExitStack() as stack:
        yield Fleet(server, store, tmp_path, stack)


async def visit(browser: Browser, title: str) -> str:
    page = await browser.new_page()
    await page.goto(f"data:text/html,<title>{title}</title>")
    return await page.title()


async def connections(store: Store) -> tuple[int, int, int]:
    """Connections as the counter, the leases and the workers' own lists have them."""
    leases = await store.zcard(PLAYWRIGHT_LEASES("chromium"))
    names = [field.partition(":")[2] for field in await active(store)]
    listed = [await store.zcard(PLAYWRIGHT_CONNECTIONS("chromium", name)) for name in names]
    return sum((await active(store)).values()), leases, sum(listed)


async def has_connections(store: Store, count: int) -> bool:
    return await connections(store) == (count, count, count)


async def settles_at(store: Store, count: int) -> None:
    await eventually(lambda: has_connections(store, count), DEADLINE)


async def test_the_keys_of_a_session_are_those_of_the_document(fleet: Fleet, playwright: Playwright) -> None:
    await fleet.start_worker()
    gateway = await fleet.start_gateway()
    browser = await playwright.chromium.connect(gateway.url)
    assert await visit(browser, "page") == "page"

    ((key, entry),) = (await entries(fleet.store)).items()
    name = key.removeprefix("worker:")
    assert name.startswith("chromium:")
    assert {"browserType", "wsEndpoint", "status", "lastHeartbeat"} <= entry.keys()
    assert (entry["browserType"], entry["status"]) == ("chromium", "available")
    assert 0 < await fleet.store.send("TTL", key) <= 3
    assert await active(fleet.store) == {name: 1}
    assert await lifetime(fleet.store) == {name: 1}
    assert await take_census(fleet.store) == []
    await browser.close()
    await settles_at(fleet.store, 0)
    assert await lifetime(fleet.store) == {name: 1}


async def test_a_killed_gateways_connections_are_forgotten_within_a_lease(
    fleet: Fleet, playwright: Playwright
) -> None:
    await fleet.start_worker()
    doomed, other = await fleet.start_gateway(), await fleet.start_gateway()
    browsers = [await playwright.chromium.connect(doomed.url) for _ in range(2)]
    survivor = await playwright.chromium.connect(other.url)
    await settles_at(fleet.store, 3)

    doomed.process.kill()

    await settles_at(fleet.store, 1)
    assert not any(browser.is_connected() for browser in browsers)
    assert await visit(survivor, "alive") == "alive"
    (total,) = (await lifetime(fleet.store)).values()
    assert total == 3
    await survivor.close()
    await settles_at(fleet.store, 0)


async def test_a_killed_gateways_places_in_line_hold_up_no_new_client(
    fleet: Fleet, playwright: Playwright
) -> None:
    await fleet.start_worker()
    environ = {"MAX_CONCURRENT_SESSIONS": "1", "REMUDA_PLAYWRIGHT_WAIT": "600"}
    doomed, other = await fleet.start_gateway(**environ), await fleet.start_gateway(**environ)
    holder = await playwright.chromium.connect(other.url)

    def connect(gateway: RunningGateway) -> "asyncio.Task[Browser]":
        return asyncio.create_task(playwright.chromium.connect(gateway.url, timeout=600_000))

    async def wait_for_line(length: int) -> None:
        async def has_length() -> bool:
            return len(await who_waits(fleet.store, "playwright:")) == length

        await eventually(has_length, DEADLINE)

    async def lease_end() -> float:
        return float(
            await fleet.store.send("ZSCORE", LINE_LEASES(first.line), f"{first.account}|{first.ticket}") or 0
        )

    async def is_renewed() -> bool:
        return await lease_end() > known

    dying = [connect(doomed) for _ in range(32)]
    await wait_for_line(32)
    new = connect(other)
    await wait_for_line(33)
    first, *_ = await who_waits(fleet.store, "playwright:")

    # Its places count for the longest time when they have just been renewed.
    known = await lease_end()
    await eventually(is_renewed, DEADLINE)
    doomed.process.kill()

    # They counted for ten seconds once; now it takes 1.6 s on an idle machine.
    async with asyncio.timeout(8):
        await holder.close()
        browser = await new
    assert await visit(browser, "mine") == "mine"
    assert all(isinstance(each, Error) for each in await asyncio.gather(*dying, return_exceptions=True))
    assert await who_waits(fleet.store, "playwright:") == []
    await browser.close()
    await settles_at(fleet.store, 0)


async def test_a_gateway_that_is_asked_to_leave_leaves_no_connection_behind(
    fleet: Fleet, playwright: Playwright
) -> None:
    await fleet.start_worker()
    gateway = await fleet.start_gateway()
    browser = await playwright.chromium.connect(gateway.url)
    await settles_at(fleet.store, 1)

    # The second signal ends the drain.
    gateway.process.terminate()
    gateway.process.send_signal(signal.SIGINT)
    await asyncio.to_thread(gateway.process.wait, DEADLINE)

    assert await connections(fleet.store) == (0, 0, 0)
    await eventually(lambda: not browser.is_connected(), DEADLINE)


async def test_a_killed_workers_clients_see_it_and_the_next_get_another(
    fleet: Fleet, playwright: Playwright
) -> None:
    doomed = await fleet.start_worker()
    gateway = await fleet.start_gateway()
    browser = await playwright.chromium.connect(gateway.url)
    await fleet.start_worker()

    doomed.process.kill()

    await eventually(lambda: not browser.is_connected(), DEADLINE)
    await settles_at(fleet.store, 0)
    # Its key is still there, and it comes first in the order: who is sent there is sent on.
    for _ in range(3):
        assert await visit(await playwright.chromium.connect(gateway.url), "next") == "next"
    await settles_at(fleet.store, 3)


async def test_a_worker_whose_browser_dies_leaves_no_trace(fleet: Fleet, playwright: Playwright) -> None:
    worker = await fleet.start_worker()
    gateway = await fleet.start_gateway()
    browser = await playwright.chromium.connect(gateway.url)

    browser_process(worker.directory).kill()

    await eventually(lambda: not browser.is_connected(), DEADLINE)
    await worker.ends()
    assert await entries(fleet.store) == {}
    await settles_at(fleet.store, 0)
    await eventually(lambda: is_blank(fleet.store), DEADLINE)


async def is_blank(store: Store) -> bool:
    return await active(store) == {} and await lifetime(store) == {}


async def test_connections_survive_a_redis_that_lost_everything(fleet: Fleet, playwright: Playwright) -> None:
    await fleet.start_worker()
    gateway = await fleet.start_gateway()
    browsers = [await playwright.chromium.connect(gateway.url) for _ in range(2)]
    await settles_at(fleet.store, 2)

    fleet.server.kill()
    for browser in browsers:
        assert await visit(browser, "meanwhile") == "meanwhile"
    fleet.server.start()

    await eventually(lambda: fleet.store.is_connected, DEADLINE)
    await settles_at(fleet.store, 2)
    browsers.append(await playwright.chromium.connect(gateway.url))
    await settles_at(fleet.store, 3)
    for left, browser in zip((2, 1, 0), browsers, strict=True):
        assert await visit(browser, "still here") == "still here"
        await browser.close()
        await settles_at(fleet.store, left)


async def test_sixty_clients_share_two_workers_with_five_places_each(
    fleet: Fleet, playwright: Playwright
) -> None:
    await fleet.start_worker()
    await fleet.start_worker()
    gateway = await fleet.start_gateway(REMUDA_PLAYWRIGHT_WAIT="600", MAX_LIFETIME_SESSIONS="1000")
    most = 0

    async def use() -> None:
        nonlocal most
        browser = await playwright.chromium.connect(gateway.url, timeout=600_000)
        shown = await active(fleet.store)
        most = max(most, *shown.values())
        assert await visit(browser, "mine") == "mine"
        await browser.close()

    async with asyncio.timeout(300):
        await asyncio.gather(*(use() for _ in range(60)))

    assert most == 5
    assert await who_waits(fleet.store, "playwright:") == []
    assert sum((await lifetime(fleet.store)).values()) == 60
    await settles_at(fleet.store, 0)


async def test_a_client_without_a_place_is_told_so_in_plain_words(
    fleet: Fleet, playwright: Playwright
) -> None:
    gateway = await fleet.start_gateway(REMUDA_PLAYWRIGHT_WAIT="1", REMUDA_PLAYWRIGHT_EXPECTED="firefox")

    with pytest.raises(Error, match=r"503 Service Unavailable\n.*There is no worker with firefox"):
        await playwright.firefox.connect(gateway.url)
    with pytest.raises(Error, match=r"404 Not Found\n.*nothing here can start one; on offer: firefox"):
        await playwright.webkit.connect(gateway.url)


async def test_a_killed_gateway_takes_its_clients_own_browsers_along(
    fleet: Fleet, playwright: Playwright
) -> None:
    worker = await fleet.start_worker("--isolation", "own")
    gateway = await fleet.start_gateway()
    browser = await playwright.chromium.connect(f"{gateway.url}?own=true")
    assert await visit(browser, "page") == "page"
    directory = worker.directory
    started = processes_of(directory)

    gateway.process.kill()

    await eventually(lambda: are_gone(started), DEADLINE)
    await eventually(lambda: not directory.exists(), DEADLINE)
    assert not worker.has_ended
