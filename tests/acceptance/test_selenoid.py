"""Selenoid's and Moon's ways to a browser's DevTools, with a WebSocket client as their users have one."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest
from selenium import webdriver

from herds import Herd

PATIENCE = 30


@pytest.fixture
def driver(herd: Herd) -> Iterator[webdriver.Remote]:
    driver = webdriver.Remote(herd.url, options=webdriver.ChromeOptions())
    yield driver
    driver.quit()


@pytest.fixture
async def client(herd: Herd) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(herd.url) as client:
        yield client


async def tell(client: aiohttp.ClientSession, path: str, method: str, **params: Any) -> Any:
    """What DevTools answer to a command."""
    async with asyncio.timeout(PATIENCE), client.ws_connect(path, max_msg_size=0) as socket:
        await socket.send_json({"id": 1, "method": method, "params": params})
        while (said := await socket.receive_json()).get("id") != 1:
            continue
        return said["result"]


async def test_devtools_are_where_selenoid_and_moon_have_them(
    client: aiohttp.ClientSession, driver: webdriver.Remote
) -> None:
    driver.get("data:text/html,<title>the herd</title>")
    page, session = driver.current_window_handle, driver.session_id

    for root in (f"/devtools/{session}", f"/session/{session}/aerokube/devtools"):
        for whole in (root, f"{root}/", f"{root}/browser"):
            assert "Chrome" in (await tell(client, whole, "Browser.getVersion"))["product"]
        for one in (f"{root}/page", f"{root}/page/{page}"):
            title = await tell(client, one, "Runtime.evaluate", expression="document.title")
            assert title["result"]["value"] == "the herd"
        async with client.get(f"{root}/json/protocol") as answer:
            assert (answer.status, "domains" in await answer.json()) == (200, True)


async def test_what_is_no_way_to_devtools_is_refused(
    client: aiohttp.ClientSession, driver: webdriver.Remote
) -> None:
    for rest in ("/page/nonsense", "/elsewhere", "/json", "/browser/x"):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await client.ws_connect(f"/devtools/{driver.session_id}{rest}")

        assert refused.value.status == 404


def test_devtools_without_a_websocket_say_what_is_missing(herd: Herd, driver: webdriver.Remote) -> None:
    status, answer, _ = herd.request("GET", f"/devtools/{driver.session_id}/page")

    assert (status, "WebSocket" in json.dumps(answer)) == (400, True)


def test_what_the_herd_does_not_have_of_selenoids_is_refused(herd: Herd, driver: webdriver.Remote) -> None:
    status, answer, _ = herd.request("GET", f"/clipboard/{driver.session_id}")

    assert (status, answer["value"]["error"]) == (404, "unknown command")
