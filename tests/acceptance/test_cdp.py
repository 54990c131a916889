"""A stock Playwright client takes a Chromium of its own over DevTools, for as long as it is connected."""

from collections.abc import AsyncIterator
from uuid import UUID

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Playwright

from herds import DEADLINE, Herd
from remuda.base.ids import SessionId
from remuda.grid.model import State, state_of
from remuda.keyspace import grid
from remuda.store import Store
from waiting import eventually

# In one process, so that only one herd has to start for them.
pytestmark = pytest.mark.xdist_group("cdp")
in_session = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def herd(light_herd: Herd) -> Herd:
    return light_herd


@pytest_asyncio.fixture(loop_scope="session")
async def store(herd: Herd) -> AsyncIterator[Store]:
    """The herd's own Redis."""
    async with Store(herd.redis_url) as store:
        yield store


async def active(store: Store) -> set[SessionId]:
    return {SessionId(each) for each in await store.smembers(grid.SESSIONS_ACTIVE())}


async def visit(browser: Browser, title: str) -> list[str]:
    """The titles of all pages that the browser's client sees, after it has opened one with this title."""
    page = await browser.contexts[0].new_page()
    await page.goto(f"data:text/html,<title>{title}</title>")
    return [await each.title() for each in browser.contexts[0].pages if "<title>" in each.url]


@in_session
@pytest.mark.parametrize("form", ["ws /cdp", "http /cdp", "http "])
async def test_every_form_of_the_address_leads_to_a_browser(
    herd: Herd, playwright: Playwright, form: str
) -> None:
    scheme, path = form.split(" ")
    url = herd.url.replace("http", scheme) + path
    async with await playwright.chromium.connect_over_cdp(url) as browser:
        assert await visit(browser, "page") == ["page"]


@in_session
async def test_no_client_sees_the_pages_of_another(herd: Herd, playwright: Playwright) -> None:
    url = f"{herd.url}/cdp"
    connect = playwright.chromium.connect_over_cdp
    async with await connect(url) as first, await connect(url) as second:
        assert await visit(first, "one") == ["one"]
        assert await visit(second, "two") == ["two"]


@in_session
async def test_the_session_ends_with_its_websocket(herd: Herd, playwright: Playwright, store: Store) -> None:
    before = await active(store)
    async with await playwright.chromium.connect_over_cdp(f"{herd.url}/cdp"):
        (session,) = await active(store) - before

    await eventually(lambda: ended(store, session), DEADLINE)


@in_session
async def test_the_session_ends_even_if_its_gateway_is_killed(
    herd: Herd, playwright: Playwright, store: Store
) -> None:
    before = await active(store)
    async with await playwright.chromium.connect_over_cdp(f"{herd.url}/cdp") as browser:
        (session,) = await active(store) - before

        herd.process_of("run", "gateway").kill()

        await eventually(lambda: ended(store, session), DEADLINE)
        await eventually(lambda: not browser.is_connected(), DEADLINE)


async def ended(store: Store, session: SessionId) -> bool:
    return state_of(await store.hgetall(grid.SESSION_STATUS(session))) is State.TERMINATED


@in_session
@pytest.mark.parametrize("path", ["/cdp", "/", "/playwright", f"/session/{UUID(int=0)}/se/cdp"])
async def test_a_malformed_handshake_starts_nothing(herd: Herd, store: Store, path: str) -> None:
    before = await active(store)
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}

    without_key = herd.request("GET", path, **upgrade, **{"Sec-WebSocket-Version": "13"})
    another_version = herd.request(
        "GET", path, **upgrade, **{"Sec-WebSocket-Version": "8", "Sec-WebSocket-Key": "A" * 22 + "=="}
    )

    assert (without_key[0], another_version[0]) == (400, 426)
    assert another_version[2]["Sec-WebSocket-Version"] == "13"
    assert await active(store) == before


def test_who_asks_without_a_websocket_hears_how_to(herd: Herd) -> None:
    status, answer, headers = herd.request("GET", "/cdp")

    assert status == 426
    assert "connect_over_cdp" in answer["error"]["message"]
    assert headers["Upgrade"] == "websocket"
