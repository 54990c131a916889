"""A stock Selenium client names its session, and says how long it may be idle."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from selenium import webdriver

from clients import options_for
from herds import Herd
from remuda.base.ids import SessionId
from remuda.grid.sessions import Sessions
from remuda.keyspace import grid
from remuda.store import Store
from waiting import eventually

DEADLINE = 60.0


@pytest.fixture
async def store(herd: Herd) -> AsyncIterator[Store]:
    """The herd's own Redis."""
    async with Store(herd.redis_url) as store:
        yield store


async def opened(herd: Herd, **capabilities: Any) -> webdriver.Remote:
    return await asyncio.to_thread(webdriver.Remote, herd.url, options=options_for(**capabilities))


async def test_a_session_goes_by_the_names_that_its_client_gives_it(herd: Herd, store: Store) -> None:
    driver = await opened(
        herd, **{"se:name": "round-up", "remuda:options": {"build": "17", "metadata": {"team": "qa"}}}
    )
    try:
        key = grid.SESSION_METADATA(SessionId(driver.session_id or ""))
        assert await store.hgetall(key) == {"name": "round-up", "build": "17", "team": "qa"}

        def post(path: str, body: str) -> tuple[int, Any]:
            return herd.request("POST", f"/session/{driver.session_id}/{path}", body)[:2]

        ours = await asyncio.to_thread(post, "remuda/metadata", '{"build": "18", "passed": true}')
        theirs = await asyncio.to_thread(post, "webgrid/metadata", '{"step": 3}')
        refused, error = await asyncio.to_thread(post, "remuda/metadata", '{"a key": "x"}')
        # On about:blank no page could have a cookie.
        await asyncio.to_thread(driver.add_cookie, {"name": "webgrid:metadata.session:name", "value": "x"})

        assert (ours, theirs) == ((200, {"value": None}), (200, {"value": None}))
        assert (refused, error["value"]["error"]) == (400, "invalid argument")
        labels = {"name": "x", "build": "18", "team": "qa", "passed": "true", "step": "3"}
        assert await store.hgetall(key) == labels
        shown = (await asyncio.to_thread(herd.request, "GET", f"/api/sessions/{driver.session_id}"))[1]
        assert (shown["name"], shown["build"]) == ("x", "18")
        await assert_cookies_still_work(herd, driver)
    finally:
        await asyncio.to_thread(driver.quit)


async def assert_cookies_still_work(herd: Herd, driver: webdriver.Remote) -> None:
    await asyncio.to_thread(driver.get, f"{herd.url}/healthz")
    await asyncio.to_thread(driver.add_cookie, {"name": "kept", "value": "yes"})

    cookies = await asyncio.to_thread(driver.get_cookies)

    assert [(cookie["name"], cookie["value"]) for cookie in cookies] == [("kept", "yes")]


async def test_a_session_may_be_idle_for_as_long_as_its_client_says(herd: Herd, store: Store) -> None:
    driver = await opened(herd, **{"selenoid:options": {"sessionTimeout": "1s"}})
    session = SessionId(driver.session_id or "")

    async def is_over() -> bool:
        return bool(await store.sismember(grid.SESSIONS_TERMINATED(), session))

    await eventually(is_over, DEADLINE)

    assert await Sessions(store).last_words(session) == ("STIMEOUT", {"message": "No command came for 1 s"})
