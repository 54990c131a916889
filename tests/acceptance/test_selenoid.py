"""Selenoid's and Moon's ways to a browser's DevTools and clipboard, as their users go them."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import aiohttp
import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from clients import options_for
from herds import Herd
from lending import Lender

# In one process, so that only one browser has to start for them.
pytestmark = pytest.mark.xdist_group("selenoid")

PATIENCE = 30


@pytest.fixture(scope="module")
def lender(herd: Herd) -> Iterator[Lender[webdriver.Remote]]:
    # A whole Chromium: a headless shell may have a clipboard of another kind.
    start = partial(webdriver.Remote, herd.url, options=options_for("chrome"))
    lender = Lender(start, is_usable=is_usable, end=webdriver.Remote.quit)
    yield lender
    lender.end()


def is_usable(driver: webdriver.Remote) -> bool:
    """Whether its one window still shows what it is told to."""
    with suppress(WebDriverException):
        driver.get("data:text/html,<title>well</title>")
        return (driver.title, len(driver.window_handles)) == ("well", 1)
    return False


@pytest.fixture
def driver(lender: Lender[webdriver.Remote]) -> webdriver.Remote:
    """A session that tests leave as it is but for its page and the clipboard."""
    return lender.lend()


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


FIELD = "data:text/html,<title>the page</title><input id=field value=hay>"


@pytest.mark.parametrize("root", ["/clipboard/{}", "/session/{}/aerokube/clipboard"])
async def test_what_is_put_on_the_clipboard_can_be_pasted(
    client: aiohttp.ClientSession, driver: webdriver.Remote, root: str
) -> None:
    path = root.format(driver.session_id)
    driver.get(FIELD)
    page = driver.current_window_handle

    async with client.post(path, data="h\u00e9 'said' \u2211 \\n".encode()) as answer:
        assert (answer.status, await answer.text()) == (200, "")

    field = driver.find_element(By.ID, "field")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(Keys.CONTROL, "v")
    assert field.get_property("value") == "h\u00e9 'said' \u2211 \\n"
    assert (driver.title, driver.window_handles) == ("the page", [page])


async def test_what_a_page_copies_can_be_read_from_the_clipboard(
    client: aiohttp.ClientSession, driver: webdriver.Remote
) -> None:
    driver.get(FIELD)
    field = driver.find_element(By.ID, "field")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(Keys.CONTROL, "c")

    async with client.get(f"/clipboard/{driver.session_id}") as answer:
        assert (answer.status, await answer.text()) == (200, "hay")
        assert answer.content_type == "text/plain"


@pytest.mark.parametrize(
    ("method", "rest", "body", "refusal"),
    [
        ("GET", "/x", "", (404, "unknown command")),
        ("DELETE", "", "", (404, "unknown command")),
        ("POST", "", b"\xff", (400, "invalid argument")),
    ],
)
def test_what_is_no_use_of_the_clipboard_is_refused(
    herd: Herd, driver: webdriver.Remote, method: str, rest: str, body: str, refusal: tuple[int, str]
) -> None:
    status, answer, _ = herd.request(method, f"/clipboard/{driver.session_id}{rest}", body)

    assert (status, answer["value"]["error"]) == refusal
