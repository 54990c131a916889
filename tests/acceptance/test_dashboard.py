"""A real browser on the dashboard."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from books import placed, register
from herds import Herd
from remuda.base.ids import OrchestratorId, new_id
from remuda.fleet.line import Lines
from remuda.grid.draining import Draining
from remuda.grid.model import State
from remuda.store import Store
from remuda.web.api import Api
from remuda.web.openapi import public_path
from remuda.web.table import ROUTES
from waiting import eventually
from web_states import Rider, front_of, orchestrator, running

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
TEXT = "const found = document.querySelector(arguments[0]); return found ? found.innerText : ''"
CLICK = "const found = document.querySelector(arguments[0]); found?.click(); return Boolean(found)"
AXE = Path(__file__).parent / "node/node_modules/axe-core/axe.min.js"
RUN_AXE = "axe.run(document).then(found => arguments[arguments.length - 1](found.violations))"
# Colours do not depend on the width, nor the layout on the colours.
LOOKS = [("light", 1300), ("dark", 400)]
DEADLINE = 30.0


class Page:
    """What a person sees and does. The browser is asked in a thread: the page is served by this loop."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self._driver = driver

    async def open(self, url: str) -> None:
        await asyncio.to_thread(self._driver.get, url)

    async def run(self, script: str, *args: str) -> Any:
        return await asyncio.to_thread(self._driver.execute_script, script, *args)

    async def sees(self, words: str, *, at: str = "body") -> None:
        """Waits until the words stand there."""

        async def is_there() -> bool:
            return words in await self.run(TEXT, at)

        try:
            await eventually(is_there, DEADLINE)
        except AssertionError:
            raise AssertionError(f"no {words!r} in {await self.run(TEXT, at)!r}") from None

    async def looks(self, *, scheme: str, width: int) -> None:
        """Shows the page in a colour scheme and a width."""
        scheme_feature = {"name": "prefers-color-scheme", "value": scheme}
        # A colour that is still changing has no contrast to speak of.
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        await self._tell("Emulation.setEmulatedMedia", features=[scheme_feature, still])
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        await self._tell("Emulation.setDeviceMetricsOverride", **size)

    async def looks_usual(self) -> None:
        """Takes back what `looks` has set."""
        await self._tell("Emulation.setEmulatedMedia", features=[])
        await self._tell("Emulation.clearDeviceMetricsOverride")

    async def violations(self) -> list[str]:
        """What axe-core finds wrong with the page, with the elements that it means."""
        found = await asyncio.to_thread(self._driver.execute_async_script, f"{AXE.read_text()};{RUN_AXE}")
        return [
            f"{each['id']}: {node['html'][:150]} {node['any'][0]['message'] if node['any'] else ''}"
            for each in found
            for node in each["nodes"]
        ]

    async def presses(self, key: str) -> None:
        await asyncio.to_thread(lambda: ActionChains(self._driver).send_keys(key).perform())

    async def is_gone(self, selector: str) -> None:
        """Waits until there is no such element."""
        await eventually(lambda: self.run("return !document.querySelector(arguments[0])", selector), DEADLINE)

    async def _tell(self, method: str, **parameters: Any) -> None:
        await asyncio.to_thread(self._driver.execute_cdp_cmd, method, parameters)

    async def clicks(self, selector: str) -> None:
        await eventually(lambda: self.run(CLICK, selector), DEADLINE)

    async def complaints(self) -> list[Any]:
        """What the browser has written to its console since the last time."""
        return list(await asyncio.to_thread(self._driver.get_log, "browser"))


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """A browser of the test's own, with a profile that nobody has used."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no Chromium here: run make setup")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield browser
    finally:
        browser.quit()


@pytest.fixture
async def page(chromium: webdriver.Chrome) -> AsyncIterator[Page]:
    """An empty page; the one before is gone, and with it what it had to say."""
    page = Page(chromium)
    await page.open("about:blank")
    await page.complaints()
    yield page
    await page.open("about:blank")


@asynccontextmanager
async def dashboard(store: Store, page: Page) -> AsyncIterator[Rider]:
    """The dashboard of a herd without sessions, open on the page."""
    async with running(orchestrator(store, slots=3)), front_of(Api(store), store) as url:
        await page.open(url)
        await page.sees("live", at=".connection")
        yield Rider(store)
        await page.open("about:blank")


async def test_a_session_appears_without_a_reload(store: Store, page: Page) -> None:
    async with dashboard(store, page) as rider:
        await page.sees("The herd is rested.")
        await page.run("window.wasNotReloaded = true")

        await rider.serve(browserName="chrome", **{"se:name": "pay by card"})

        await page.sees("pay by card", at="#sessions")
        await page.sees("chrome 130", at="#sessions")
        await page.sees("pay by card", at=".tile.busy")
        await page.sees("1/3", at=".figures")
        assert await page.run("return window.wasNotReloaded")
        assert await page.complaints() == []


async def test_the_whole_life_of_a_session_is_shown(store: Store, page: Page) -> None:
    async with dashboard(store, page) as rider:
        waiting = await rider.queue(browserName="firefox", **{"se:name": "print invoice"})
        await page.sees("print invoice", at="#queue")

        await rider.schedule(browserName="chrome", **{"se:name": "pay by card"})
        await page.sees("pay by card", at=".tile.starting")

        await rider.end(waiting, code="QTIMEOUT")
        await page.clicks("details summary")
        await page.sees("print invoice", at="details.card")
        assert await page.complaints() == []


async def test_what_a_page_complains_about_would_be_noticed(page: Page) -> None:
    await page.run("console.error('ouch')")

    assert "ouch" in str(await page.complaints())


async def test_a_newcomer_is_shown_how_to_begin(store: Store, page: Page) -> None:
    async with dashboard(store, page):
        origin = await page.run("return location.origin")

        await page.sees(f'webdriver.Remote("{origin}"', at=".snippet")


async def test_a_click_on_a_session_shows_its_log_as_it_grows(store: Store, page: Page) -> None:
    async with dashboard(store, page) as rider:
        session = await rider.serve(browserName="chrome")
        await page.clicks("#sessions tbody tr")
        await page.sees("node has become responsive, client served", at="aside")

        await rider.end(session, code="STIMEOUT", message="No command came for 900 s")

        await page.sees("No command came for 900 s", at="aside")
        await page.sees("terminated", at="aside")
        assert await page.complaints() == []


async def test_all_labels_of_a_session_are_shown_and_that_its_orchestrator_drains(
    store: Store, page: Page
) -> None:
    async with dashboard(store, page) as rider:
        session = await rider.serve(browserName="chrome")
        await rider.sessions.add_labels(session, {"build": "2026.11", "team": "payments"})
        await page.clicks("#sessions tbody tr")
        await page.sees("payments", at="aside dl")
        await page.sees("team", at="aside dl")

        await Draining(store).begin(OrchestratorId("ranch"))
        await page.sees("draining", at=".entry")


async def test_a_session_is_ended_after_a_second_thought(store: Store, page: Page) -> None:
    async with dashboard(store, page) as rider:
        session = await rider.serve(browserName="chrome")
        await page.clicks("#sessions .end")
        await page.sees("Really end?", at="#sessions .end")
        assert await rider.sessions.state(session) is State.ALIVE

        await page.clicks("#sessions .end")

        await page.sees("The herd is rested.")
        assert await rider.sessions.state(session) is State.TERMINATED


async def test_what_a_client_calls_its_session_stays_a_text(store: Store, page: Page) -> None:
    name = "<img src=x onerror='window.wasFooled = true'>"
    async with dashboard(store, page) as rider:
        await rider.serve(browserName=name, **{"se:name": name})

        await page.sees(name, at="#sessions")
        assert not await page.run("return window.wasFooled")
        assert await page.complaints() == []


async def test_playwright_workers_and_those_who_wait_are_shown(store: Store, page: Page) -> None:
    async with dashboard(store, page):
        assert await page.run("return document.querySelector('#playwright')") is None
        first, _ = await register(store, "first", "second")
        await placed(store)
        await page.sees("1 connection at 2 workers; nobody waits", at="#playwright")

        await first.drain()
        await page.sees("draining", at="#playwright")
        async with Lines(store).wait("playwright:chromium:1.62", new_id()):
            await page.sees("1 client waits, the first for", at="#playwright")
            await page.sees("#1", at="#playwright")
        await page.sees("nobody waits", at="#playwright")
        assert await page.complaints() == []


async def test_axe_finds_nothing_wrong_with_any_view(store: Store, page: Page) -> None:
    found = {}

    async def look(view: str) -> None:
        for scheme, width in LOOKS:
            await page.looks(scheme=scheme, width=width)
            found[view, scheme, width] = await page.violations()
        await page.looks_usual()

    async with dashboard(store, page) as rider:
        await page.sees("The herd is rested.")
        await look("empty")

        session = await rider.serve(browserName="chrome", **{"se:name": "pay by card"})
        await rider.schedule(browserName="chrome")
        await rider.queue(browserName="firefox", **{"se:name": "print invoice"})
        await rider.end(await rider.serve(browserName="chrome"), code="STIMEOUT")
        first, _ = await register(store, "first", "second")
        await placed(store)
        await first.drain()
        await page.sees("draining", at="#playwright")
        await page.clicks("details summary")
        await page.sees("Lasted", at="details.card")
        await look("busy")

        await page.clicks("#sessions .end")
        await page.clicks("#sessions tbody tr a")
        await page.sees("node has become responsive", at="aside")
        await page.run("for (const each of document.querySelectorAll('aside summary')) each.click()")
        await look("details")
        await rider.end(session, code="STIMEOUT", message="No command came for 900 s")
        await page.sees("No command came for 900 s", at="aside")
        await look("details of an ended session")

        await page.open(f"{await page.run('return location.origin')}/api/docs")
        await page.sees("/api/overview")
        await page.run("for (const each of document.querySelectorAll('summary')) each.click()")
        await look("API")
    await page.open("about:blank")

    assert {view: wrong for view, wrong in found.items() if wrong} == {}


async def test_axe_finds_nothing_wrong_with_a_page_that_has_lost_the_herd(store: Store, page: Page) -> None:
    async with front_of(Api(store), store) as url:
        await page.open(url)
        await page.sees("live", at=".connection")
    await page.sees("The herd cannot be reached.", at=".notice")

    await page.looks(scheme="light", width=1300)
    light = await page.violations()
    await page.looks(scheme="dark", width=1300)
    dark = await page.violations()
    await page.looks_usual()

    assert (light, dark) == ([], [])


async def test_escape_closes_the_details_wherever_the_focus_is(store: Store, page: Page) -> None:
    async with dashboard(store, page) as rider:
        await rider.serve(browserName="chrome")
        await page.clicks("#sessions tbody tr")
        await page.sees("node has become responsive", at="aside")
        await page.run("document.querySelector('header a').focus()")

        await page.presses(Keys.ESCAPE)

        await page.is_gone("aside")


async def test_a_page_that_has_lost_the_herd_says_so(store: Store, page: Page) -> None:
    async with front_of(Api(store), store) as url:
        await page.open(url)
        await page.sees("live", at=".connection")

    await page.sees("disconnected", at=".connection")
    await page.sees("The herd cannot be reached.", at=".notice")


async def test_the_page_of_the_api_shows_every_route(store: Store, page: Page) -> None:
    async with front_of(Api(store), store) as url:
        await page.open(f"{url}/api/docs")

        for route in ROUTES:
            await page.sees(public_path(route))
        await page.run("for (const each of document.querySelectorAll('summary')) each.click()")
        await page.sees("list of SessionView")
        assert await page.complaints() == []


async def test_a_real_session_is_seen_through_the_front_door(herd: Herd, page: Page) -> None:
    await page.open(herd.url)
    await page.sees("live", at=".connection")

    options = webdriver.ChromeOptions()
    options.set_capability("se:name", "a session of flesh and blood")
    client = await asyncio.to_thread(webdriver.Remote, herd.url, options=options)
    try:
        await page.sees("a session of flesh and blood", at="#sessions")
        await page.sees("alive", at="#sessions")
        await page.sees("gateway", at="#roles")
    finally:
        await asyncio.to_thread(client.quit)
    assert await page.complaints() == []
