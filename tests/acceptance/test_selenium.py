"""A stock Selenium client takes a browser from the herd and drives a page."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest
from selenium import webdriver
from selenium.common.exceptions import InvalidSessionIdException, SessionNotCreatedException
from selenium.webdriver.common.by import By

from clients import options_for
from herds import Herd
from installed import LIGHTEST
from readme import snippet_with
from remuda.base.ids import SessionId
from remuda.grid.model import State, state_of
from remuda.keyspace import grid, metrics
from remuda.store import Store
from remuda.store.commands import stream_entries
from waiting import eventually

PAGE = "data:text/html,<title>Pasture</title><button onclick=\"document.title='Clicked'\">Go</button>"


@pytest.fixture
async def store(herd: Herd) -> AsyncIterator[Store]:
    """The herd's own Redis."""
    async with Store(herd.redis_url) as store:
        yield store


@contextmanager
def session(url: str, browser: str = LIGHTEST) -> Iterator[webdriver.Remote]:
    driver = webdriver.Remote(url, options=options_for(browser))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.mark.parametrize("prefix", ["/", "/wd/hub"])
def test_a_stock_client_drives_a_page(herd: Herd, prefix: str) -> None:
    with session(herd.url + prefix, "chrome") as driver:
        driver.get(PAGE)
        driver.find_element(By.TAG_NAME, "button").click()

        assert driver.title == "Clicked"
        assert driver.capabilities["browserName"] == "chrome"


def test_what_a_client_calls_its_session_is_handed_back_as_by_selenium_grid(herd: Herd) -> None:
    options = options_for(**{"se:name": "pay by card", "se:ticket": 17})
    driver = webdriver.Remote(herd.url, options=options)
    try:
        told = driver.capabilities
        _, listed, _ = herd.request("GET", "/graphql?query={sessionsInfo{sessions{capabilities}}}")
    finally:
        driver.quit()

    assert (told["se:name"], told["se:ticket"]) == ("pay by card", 17)
    assert "se:remoteUrl" not in told
    (session,) = listed["data"]["sessionsInfo"]["sessions"]
    assert json.loads(session["capabilities"])["se:name"] == "pay by card"


def test_the_snippet_of_the_readme_works_as_it_stands(herd: Herd, tmp_path: Path) -> None:
    script = tmp_path / "snippet.py"
    script.write_text(snippet_with("selenium").replace("http://127.0.0.1:4444", herd.url))

    result = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)

    assert result.returncode == 0, result.stderr
    assert result.stdout == "Hello from the herd\n"


async def test_bidi_works_at_the_url_that_the_client_is_given(herd: Herd) -> None:
    options = options_for(webSocketUrl=True)
    driver = await asyncio.to_thread(webdriver.Remote, herd.url, options=options)
    try:
        url = driver.capabilities["webSocketUrl"]
        assert url == f"{herd.url.replace('http', 'ws')}/session/{driver.session_id}"

        async with aiohttp.ClientSession() as client, client.ws_connect(url) as socket:
            await socket.send_json({"id": 1, "method": "browsingContext.getTree", "params": {}})
            answer = await socket.receive_json(timeout=30)
            await socket.send_json({"id": 2, "method": "session.end", "params": {}})
            last = await socket.receive_json(timeout=30)
    finally:
        await asyncio.to_thread(driver.quit)

    assert answer["id"] == 1
    assert answer["result"]["contexts"]
    assert last == {"id": 2, "type": "success", "result": {}}


async def test_a_session_leaves_the_documented_traces(herd: Herd, store: Store) -> None:
    driver = await asyncio.to_thread(webdriver.Remote, herd.url, options=options_for())
    session_id = SessionId(driver.session_id or "")
    assert await store.sismember(grid.SESSIONS_ACTIVE(), session_id)
    assert await store.exists(grid.SESSION_HEARTBEAT_NODE(session_id))
    slot = await store.get(grid.SESSION_SLOT(session_id))

    await asyncio.to_thread(driver.quit)

    orchestrator = (await store.lrange(grid.SESSION_ORCHESTRATOR(session_id)))[0]

    async def slot_is_back() -> bool:
        return slot in await store.lrange(grid.ORCHESTRATOR_SLOTS_AVAILABLE(orchestrator))

    await eventually(slot_is_back)
    assert await store.get(grid.SESSION_SLOT(session_id)) is None
    assert await store.sismember(grid.SESSIONS_TERMINATED(), session_id)
    assert state_of(await store.hgetall(grid.SESSION_STATUS(session_id))) is State.TERMINATED
    events = stream_entries(await store.xrange(grid.SESSION_LOG(session_id)))
    codes = [fields["code"] for _, fields in events]
    assert codes[:3] == ["QUEUED", "NALLOC", "SCHED"]
    assert codes[-4:] == ["LSINIT", "NALIVE", "CLOSED", "HALT"]
    assert set(codes[3:-4]) == {"BOOT", "DSTART", "DALIVE", "PENDING"}


async def test_more_clients_than_slots_all_get_their_turn(herd: Herd, store: Store) -> None:
    def use() -> str:
        with session(herd.url) as driver:
            driver.get(PAGE)
            return driver.title

    titles = await asyncio.gather(*(asyncio.to_thread(use) for _ in range(5)))

    assert titles == ["Pasture"] * 5
    await eventually(lambda: _is_idle(store))


async def _is_idle(store: Store) -> bool:
    return await store.scard(grid.SESSIONS_ACTIVE()) == 0


def test_a_browser_that_is_not_there_is_refused_at_once(herd: Herd) -> None:
    with pytest.raises(SessionNotCreatedException, match=r"on offer: .*chrome"):
        webdriver.Remote(herd.url, options=webdriver.EdgeOptions())


async def test_an_ended_session_says_when_and_why_it_ended(herd: Herd) -> None:
    driver = await asyncio.to_thread(webdriver.Remote, herd.url, options=options_for())
    await asyncio.to_thread(driver.quit)

    async def says_when() -> bool:
        answer = await asyncio.to_thread(herd.request, "GET", f"/session/{driver.session_id}/url")
        value = answer[1]["value"]
        # Its node says why as long as it is there, the front door afterwards also when.
        assert (answer[0], value["error"]) == (404, "invalid session id")
        assert "session closed by downstream client" in value["message"]
        return "ended at 20" in value["message"]

    await eventually(says_when)


def test_closing_the_last_window_ends_the_session(herd: Herd) -> None:
    driver = webdriver.Remote(herd.url, options=options_for())

    driver.close()

    with pytest.raises(InvalidSessionIdException, match="last window"):
        driver.get(PAGE)


async def test_a_session_that_has_ended_can_be_quit_again(herd: Herd, store: Store) -> None:
    driver = await asyncio.to_thread(webdriver.Remote, herd.url, options=options_for())
    await asyncio.to_thread(driver.close)

    # Answered by its node as long as that is there, by the front door afterwards.
    await asyncio.to_thread(driver.quit)
    await eventually(lambda: _is_idle(store))
    await asyncio.to_thread(driver.quit)


async def test_requests_and_bytes_are_counted(herd: Herd, store: Store) -> None:
    async def counted() -> tuple[int, int]:
        requests = await store.hget(metrics.METRICS_HTTP_REQUESTS("GET"), "404")
        sent = await store.hget(metrics.METRICS_HTTP_BYTES(), "out")
        return int(requests or 0), int(sent or 0)

    before = await counted()
    for _ in range(3):
        await asyncio.to_thread(herd.request, "GET", "/session/none-such/url")

    async def all_counted() -> bool:
        requests, sent = await counted()
        return requests >= before[0] + 3 and sent > before[1]

    await eventually(all_counted)
