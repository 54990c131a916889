"""Browsers of one's own, from a real worker: apart from each other, and gone with their clients."""

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import psutil
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Error, Playwright

from configs import make_config
from processes import are_gone, children_of, listeners_of
from remuda.base.confinement import protection_of
from remuda.fleet.leftovers import clear_orphans
from remuda.fleet.secret import HerdSecret
from remuda.keyspace.playwright import ACTIVE_CONNECTIONS
from remuda.store import Store
from remuda.store.census import take_census
from waiting import eventually
from workers import entries, only_entry, processes_of, running_worker

pytestmark = pytest.mark.asyncio(loop_scope="session")

SECRET = "data:text/html,<title>secret</title>"
OWN = ("--isolation", "own")


@pytest_asyncio.fixture(loop_scope="session")
async def store(redis_url: str) -> AsyncIterator[Store]:
    async with Store(redis_url) as store:
        yield store


async def credentials(store: Store) -> dict[str, str]:
    """What gateways show to a worker of their herd."""
    secret = HerdSecret(store)
    await secret.read()
    return dict([secret.header])


def with_wishes(endpoint: str, **options: object) -> str:
    """The endpoint as a gateway asks for launch options there."""
    return f"{endpoint}?{urlencode({'launch-options': json.dumps(options)})}"


async def test_clients_of_a_worker_are_out_of_each_others_reach(
    store: Store, tmp_path: Path, playwright: Playwright
) -> None:
    async with running_worker(store, tmp_path, *OWN) as worker:
        ((key, entry),) = (await entries(store)).items()
        assert key.startswith("worker:chromium-own:")
        assert entry["browserType"] == "chromium-own"
        assert await take_census(store) == []

        connect = partial(playwright.chromium.connect, headers=await credentials(store))
        alice, bob = await connect(entry["wsEndpoint"]), await connect(entry["wsEndpoint"])
        page = await alice.new_page()
        await page.goto(SECRET)
        spy = await bob.new_browser_cdp_session()
        targets = (await spy.send("Target.getTargets"))["targetInfos"]

        assert "secret" not in [target["title"] for target in targets]
        assert len(worker.directories) == 2

        await end_browser(bob)
        await eventually(lambda: len(worker.directories) == 1)
        assert not bob.is_connected()
        assert await page.title() == "secret"
        await alice.close()
        await eventually(lambda: worker.directories == [])


async def test_the_browser_of_one_client_is_out_of_reach_for_all_others(
    store: Store, tmp_path: Path, playwright: Playwright
) -> None:
    async with running_worker(store, tmp_path, *OWN) as worker:
        endpoint = (await only_entry(store))["wsEndpoint"]
        connect = partial(playwright.chromium.connect, headers=await credentials(store))
        browsers = [await connect(endpoint), await connect(f"{endpoint}?{urlencode({'proxy': '*'})}")]

        started = children_of(psutil.Process(worker.process.pid), recursive=True)
        listeners = [each.laddr for process in started for each in listeners_of(process)]
        ports = {each.port for each in listeners}
        told = [await asyncio.to_thread(path_at, port) for port in ports]

        assert len(ports) > len(browsers)
        # Not even what leads to the network of a client.
        assert {each.ip for each in listeners} == {"127.0.0.1"}
        assert not any(told)
        for browser in browsers:
            assert (await browser.new_page()).url == "about:blank"
            await browser.close()


def path_at(port: int) -> str:
    """Where Playwright's own server says that its browser is; empty when it does not answer."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/json", timeout=0.5) as answer:
            return str(json.load(answer)["wsEndpointPath"])
    except (OSError, http.client.HTTPException):
        return ""


async def end_browser(browser: Browser) -> None:
    session = await browser.new_browser_cdp_session()
    # The answer may be lost with the browser.
    with suppress(Error):
        await session.send("Browser.close")
    await eventually(lambda: not browser.is_connected())


_CLIENT = """
import json, sys
from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    page = playwright.chromium.connect(sys.argv[1], headers=json.loads(sys.argv[2])).new_page()
    print("ready", flush=True)
    page.wait_for_timeout(600_000)
"""


@asynccontextmanager
async def client_process(store: Store) -> AsyncIterator[subprocess.Popen[bytes]]:
    """A client of the one worker, with a page open, in a session of its own."""
    endpoint = (await only_entry(store))["wsEndpoint"]
    process = subprocess.Popen(
        [sys.executable, "-c", _CLIENT, endpoint, json.dumps(await credentials(store))],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        assert await asyncio.to_thread(process.stdout.readline) == b"ready\n"
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


async def test_a_browser_is_gone_when_its_client_was_killed(store: Store, tmp_path: Path) -> None:
    async with running_worker(store, tmp_path, *OWN) as worker:
        async with client_process(store) as client:
            (directory,) = worker.directories
            started = processes_of(directory)
            assert len(started) > 1

            os.killpg(client.pid, signal.SIGKILL)

            await eventually(lambda: are_gone(started))
            await eventually(lambda: worker.directories == [])
        assert psutil.Process(worker.process.pid).children() == []
        worker.process.terminate()
        assert await worker.ends() == 0


async def test_a_killed_worker_takes_its_browsers_along(store: Store, tmp_path: Path) -> None:
    async with (
        running_worker(store, tmp_path, *OWN) as worker,
        client_process(store),
    ):
        (directory,) = worker.directories
        started = processes_of(directory)

        worker.process.kill()

        await worker.ends()
        await eventually(lambda: are_gone(started))
        # What the next worker and the gc do.
        await asyncio.to_thread(clear_orphans, protection_of(make_config()).users)
        assert not directory.exists()


async def test_a_worker_that_is_to_leave_waits_for_its_clients(
    store: Store, tmp_path: Path, playwright: Playwright
) -> None:
    async with running_worker(store, tmp_path, *OWN) as worker:
        endpoint = (await only_entry(store))["wsEndpoint"]
        browser = await playwright.chromium.connect(endpoint, headers=await credentials(store))
        page = await browser.new_page()

        worker.process.terminate()
        await eventually(lambda: is_draining(store))

        await page.goto(SECRET)
        assert await page.title() == "secret"
        await browser.close()
        assert await worker.ends() == 0
        assert worker.directories == []
        assert await store.hgetall(ACTIVE_CONNECTIONS()) == {}


async def is_draining(store: Store) -> bool:
    return (await only_entry(store))["status"] == "draining"


async def test_warm_browsers_are_replaced_and_wait_for_clients_without_wishes(
    store: Store, tmp_path: Path, playwright: Playwright
) -> None:
    async with running_worker(store, tmp_path, *OWN, REMUDA_PLAYWRIGHT_WARM="1") as worker:
        endpoint = (await only_entry(store))["wsEndpoint"]
        connect = partial(playwright.chromium.connect, headers=await credentials(store))
        (warm,) = worker.directories

        tailored = await connect(with_wishes(endpoint, args=["--user-agent=Mule"]))

        page = await tailored.new_page()
        assert await page.evaluate("navigator.userAgent") == "Mule"
        assert len(worker.directories) == 2
        await tailored.close()
        await eventually(lambda: worker.directories == [warm])

        plain = await connect(endpoint)
        await eventually(lambda: len(worker.directories) == 2)
        await plain.close()
        await eventually(lambda: len(worker.directories) == 1 and not warm.exists())


async def test_a_launch_that_fails_is_told_to_the_client(
    store: Store, tmp_path: Path, playwright: Playwright
) -> None:
    async with running_worker(store, tmp_path, *OWN) as worker:
        endpoint = (await only_entry(store))["wsEndpoint"]
        connect = partial(playwright.chromium.connect, headers=await credentials(store))

        with pytest.raises(Error, match="400 Bad Request") as refusal:
            await connect(with_wishes(endpoint, channel="msedge"))

        assert "The launch option 'channel' is 'msedge', which is not offered" in str(refusal.value)
        with pytest.raises(Error, match="400 Bad Request"):
            await connect(with_wishes(endpoint, timeout=1, args=["--lang=de"]))
        with pytest.raises(Error, match="404 Not Found"):
            await connect(endpoint + "x")
        with pytest.raises(Error, match="403 Forbidden"):
            await playwright.chromium.connect(endpoint)
        await eventually(lambda: worker.directories == [])
