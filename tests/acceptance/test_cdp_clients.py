"""Puppeteer and chrome-remote-interface, called as their own pages have it."""

import asyncio
import json
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import aiohttp
import pytest
from playwright._impl._driver import compute_driver_executable
from playwright.async_api import async_playwright

from herds import DEADLINE, Herd
from programs import NODE, output_of
from remuda.base.ids import SessionId, new_id
from remuda.grid.model import State, state_of
from remuda.keyspace import grid
from remuda.store import Store
from waiting import eventually

# In one process, so that only one herd has to start for them.
pytestmark = pytest.mark.xdist_group("cdp")


@pytest.fixture
def herd(light_herd: Herd) -> Herd:
    return light_herd


@pytest.fixture
async def store(herd: Herd) -> AsyncIterator[Store]:
    """The herd's own Redis."""
    async with Store(herd.redis_url) as store:
        yield store


@pytest.fixture
async def web() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as web:
        yield web


async def run(script: str, *args: str) -> str:
    node, _ = compute_driver_executable()
    return await asyncio.to_thread(output_of, [node, NODE / script, *args])


async def active(store: Store) -> set[str]:
    return set(await store.smembers(grid.SESSIONS_ACTIVE()))


async def ended(store: Store, session: str) -> bool:
    return state_of(await store.hgetall(grid.SESSION_STATUS(SessionId(session)))) is State.TERMINATED


@pytest.mark.parametrize(("what", "form"), [("endpoint", "ws"), ("url", "http")])
async def test_puppeteer_needs_no_path(herd: Herd, what: str, form: str) -> None:
    printed = await run("puppeteer.mjs", what, herd.url.replace("http", form))

    assert printed == "Hello from Puppeteer\n"


async def test_puppeteer_comes_back_to_its_browser(herd: Herd) -> None:
    assert await run("puppeteer.mjs", "return", herd.url) == "still here\n"


async def test_playwright_over_cdp_needs_no_path(herd: Herd) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(herd.url.replace("http", "ws"))
        page = await browser.contexts[0].new_page()
        await page.goto("data:text/html,<title>no path</title>")

        assert await page.title() == "no path"
        await browser.close()


async def test_chrome_remote_interface_needs_only_host_and_port(herd: Herd) -> None:
    address = urlsplit(herd.url)

    printed = await run("remote_interface.mjs", str(address.hostname), str(address.port))

    assert json.loads(printed) == {
        "title": "Hello over CDP",
        "domains": True,
        "version": "1.3",
        "listed": ["page"],
        "opened": "data:text/plain,new",
        "pages": 2,
        "more": 3,
    }


async def test_questions_start_no_browser(herd: Herd, store: Store, web: aiohttp.ClientSession) -> None:
    before = await active(store)

    names = set()
    for path in ("/json/version", "/json/list", "/cdp/json", "/cdp/json/version") * 5:
        async with web.get(herd.url + path) as response:
            told = await response.json()
            names.add((told[0] if isinstance(told, list) else told)["webSocketDebuggerUrl"])

    assert len(names) == 20
    assert await active(store) <= before  # A session of an earlier test may still have been ending.


async def test_a_browser_with_a_name_ends_with_its_last_websocket(
    herd: Herd, store: Store, web: aiohttp.ClientSession
) -> None:
    name = new_id()
    first = await web.ws_connect(f"{herd.url}/cdp/{name}")
    second = await web.ws_connect(f"{herd.url}/cdp/{name}")

    await first.close()
    await second.send_json({"id": 1, "method": "Browser.getVersion"})
    assert "Chrome" in (await second.receive_json())["result"]["product"]
    await second.close()

    await eventually(lambda: ended(store, name), DEADLINE)
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await web.ws_connect(f"{herd.url}/cdp/{name}")
    assert caught.value.status == 404


async def test_a_browser_waits_for_its_client_as_long_as_it_was_told_to(
    herd: Herd, store: Store, web: aiohttp.ClientSession
) -> None:
    name = new_id()
    async with web.ws_connect(f"{herd.url}/cdp/{name}?keep=2s") as socket:
        await socket.send_json(
            {"id": 1, "method": "Target.createTarget", "params": {"url": "about:blank#mine"}}
        )
        await socket.receive_json()

    async with (
        web.ws_connect(f"{herd.url}/cdp/{name}"),
        web.get(f"{herd.url}/cdp/{name}/json/list") as listed,
    ):
        assert "about:blank#mine" in [each["url"] for each in await listed.json()]
        assert not await ended(store, name)

    await eventually(lambda: ended(store, name), DEADLINE)


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/cdp?keep=60s", 400, "give the session an id"),
        ("/cdp/{}?keep=soon", 400, "'60s'"),
        ("/cdp/00000000-0000-0000-0000-000000000001", 400, "random"),
        ("/cdp/{}/elsewhere", 404, "WebSocket"),
    ],
)
async def test_what_cannot_be_meant_is_refused(
    herd: Herd, web: aiohttp.ClientSession, path: str, status: int, words: str
) -> None:
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    async with web.get(herd.url + path.format(new_id()), headers=upgrade) as response:
        assert response.status == status
        assert words in (await response.json())["error"]["message"]


async def test_what_a_browser_says_of_itself_names_no_address_inside_the_herd(
    herd: Herd, web: aiohttp.ClientSession
) -> None:
    async with web.ws_connect(f"{herd.url}/cdp/{(name := new_id())}"):
        for path in ("version", "list"):
            async with web.get(f"{herd.url}/cdp/{name}/json/{path}") as response:
                text = await response.text()
            ours = f"ws://{urlsplit(herd.url).netloc}/cdp/{name}"
            assert ours in text
            assert text.replace(ours[5:], "").count("127.0.0.1:") == 0
