"""A real browser on the dashboard."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from clients import options_for
from herds import Herd
from pages import Page
from registered_workers import placed, register
from remuda.accounts.accounts import Accounts
from remuda.base import clock
from remuda.base.ids import OrchestratorId, new_id
from remuda.cli.rooms import ROOMS
from remuda.fleet.line import Lines
from remuda.grid.draining import DrainOrders
from remuda.grid.model import State
from remuda.metering.model import Services
from remuda.metering.push import Metering
from remuda.metering.quotas import QuotaChange, Quotas
from remuda.store import Store
from remuda.web.openapi import public_path
from web_states import SessionWriter, front_of, new_api, orchestrator, running

# In one process, so that only one browser has to start for them.
pytestmark = pytest.mark.xdist_group("dashboard")

CHOOSE = """
const field = document.querySelector(arguments[0])
field.value = arguments[1]
field.dispatchEvent(new Event("change", {bubbles: true}))
"""


@asynccontextmanager
async def dashboard(store: Store, page: Page) -> AsyncIterator[SessionWriter]:
    """The dashboard of a herd without sessions, open on the page."""
    async with running(orchestrator(store, slots=3)), front_of(new_api(store), store) as url:
        await page.open(url)
        await page.sees("live", at=".connection")
        yield SessionWriter(store)
        await page.open("about:blank")


async def test_a_session_appears_without_a_reload(store: Store, page: Page) -> None:
    async with dashboard(store, page) as writer:
        await page.sees("The herd is rested.")
        await page.run("window.wasNotReloaded = true")

        await writer.serve(browserName="chrome", **{"se:name": "pay by card"})

        await page.sees("pay by card", at="#sessions")
        await page.sees("chrome 130", at="#sessions")
        await page.sees("pay by card", at=".tile.busy")
        await page.sees("1/3", at=".figures")
        assert await page.run("return window.wasNotReloaded")
        assert await page.complaints() == []


async def test_the_whole_life_of_a_session_is_shown(store: Store, page: Page) -> None:
    async with dashboard(store, page) as writer:
        waiting = await writer.queue(browserName="firefox", **{"se:name": "print invoice"})
        await page.sees("print invoice", at="#queue")

        await writer.schedule(browserName="chrome", **{"se:name": "pay by card"})
        await page.sees("pay by card", at=".tile.starting")

        await writer.end(waiting, code="QTIMEOUT")
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
    async with dashboard(store, page) as writer:
        session = await writer.serve(browserName="chrome")
        await page.clicks("#sessions tbody tr")
        await page.sees("node has become responsive, client served", at="aside")

        await writer.end(session, code="STIMEOUT", message="No command came for 900 s")

        await page.sees("No command came for 900 s", at="aside")
        await page.sees("terminated", at="aside")
        assert await page.complaints() == []


async def test_all_labels_of_a_session_are_shown_and_that_its_orchestrator_drains(
    store: Store, page: Page
) -> None:
    async with dashboard(store, page) as writer:
        session = await writer.serve(browserName="chrome")
        await writer.sessions.add_labels(session, {"build": "2026.11", "team": "payments"})
        await page.clicks("#sessions tbody tr")
        await page.sees("payments", at="aside dl")
        await page.sees("team", at="aside dl")

        await DrainOrders(store).begin(OrchestratorId("ranch"))
        await page.sees("draining", at=".entry")


async def test_a_session_is_ended_after_a_second_thought(store: Store, page: Page) -> None:
    async with dashboard(store, page) as writer:
        session = await writer.serve(browserName="chrome")
        await page.clicks("#sessions .end")
        await page.sees("Really end?", at="#sessions .end")
        assert await writer.sessions.state(session) is State.ALIVE

        await page.clicks("#sessions .end")

        await page.sees("The herd is rested.")
        assert await writer.sessions.state(session) is State.TERMINATED


async def test_what_a_client_calls_its_session_stays_a_text(store: Store, page: Page) -> None:
    name = "<img src=x onerror='window.wasFooled = true'>"
    async with dashboard(store, page) as writer:
        await writer.serve(browserName=name, **{"se:name": name})

        await page.sees(name, at="#sessions")
        assert not await page.run("return window.wasFooled")
        assert await page.complaints() == []


async def test_playwright_workers_and_those_who_wait_are_shown(store: Store, page: Page) -> None:
    async with dashboard(store, page):
        assert await page.run("return document.querySelector('#playwright')") is None
        first, _ = await register(store, "first", "second")
        await placed(store)
        await page.sees("1 connection at 2 workers; none waiting", at="#playwright")

        await first.drain()
        await page.sees("draining", at="#playwright")
        async with Lines(store).wait("playwright:chromium:1.62", new_id()):
            await page.sees("1 client waits, the first for", at="#playwright")
            await page.sees("#1", at="#playwright")
        await page.sees("none waiting", at="#playwright")
        assert await page.complaints() == []


async def test_without_tokens_nobody_is_logged_in_and_anybody_sees_the_accounts(
    store: Store, page: Page
) -> None:
    await Accounts(store).change("web-team", sessions=10)
    async with dashboard(store, page):
        await page.clicks("a[href='#access']")

        await page.sees("This herd asks for no token", at="#accounts")
        await page.sees("0 of 10 sessions in use; 0 tokens", at="#accounts")
        await page.sees("Nothing was changed yet.", at="#audit")
        await page.is_gone(".person")
        assert await page.complaints() == []


async def used_by_two_accounts(store: Store) -> None:
    """Sessions and artifacts of the last days, and a quota."""
    services = Services(service for room in ROOMS for service in room.services)
    metering, now = Metering(store, services=services), clock.now_ms()
    for hour in range(60):
        at = now - hour * 3_600_000
        for account, size in (("web-team", 3 + hour % 7), ("qa", 2)):
            whose = {"accountId": account}
            seconds = {**whose, "seconds": 40 * size}
            sent = {"requests": 90 * size, "incomingBytes": 9000 * size, "outgoingBytes": 70_000 * size}
            await metering.push("createSession", whose, service="grid", timestamp=at)
            await metering.push("useBrowser", seconds, service="grid", timestamp=at)
            await metering.push("sendCommands", {**whose, **sent}, service="grid", timestamp=at)
            kept = {**whose, "byteLength": 2_000_000 * size, "numberOfObjects": 1}
            await metering.push("addArtifacts", kept, service="artifacts", timestamp=at)
    quotas = Quotas(store, services, precision=15)
    await quotas.change("web-team", {"grid.browserSeconds": QuotaChange(hard=100, soft=50, period="day")})


async def test_usage_is_drawn_for_each_account_service_and_measure(store: Store, page: Page) -> None:
    await used_by_two_accounts(store)
    async with dashboard(store, page):
        await page.clicks("a[href='#usage']")
        await page.sees("browserSeconds", at="#usage")
        await page.sees("storageUtilized", at="#usage")
        await page.run(CHOOSE, "select[name=since]", "7d")
        await page.sees("120 CreateSession", at="#usage")

        await page.run(CHOOSE, "select[name=account]", "qa")
        await page.sees("60 CreateSession", at="#usage")
        await page.is_gone("#quotas")
        bars = await page.run("return document.querySelector('.chart').querySelectorAll('rect').length")

        assert bars in (168, 169)
        assert await page.run("return document.documentElement.scrollWidth <= innerWidth")
        assert await page.complaints() == []


async def test_axe_finds_nothing_wrong_with_any_view(store: Store, page: Page) -> None:
    found = {}

    async def look(view: str) -> None:
        found[view] = await page.violations_in_all_looks()

    async with dashboard(store, page) as writer:
        await page.sees("The herd is rested.")
        await look("empty")

        session = await writer.serve(browserName="chrome", **{"se:name": "pay by card"})
        await writer.schedule(browserName="chrome")
        await writer.queue(browserName="firefox", **{"se:name": "print invoice"})
        await writer.end(await writer.serve(browserName="chrome"), code="STIMEOUT")
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
        await writer.end(session, code="STIMEOUT", message="No command came for 900 s")
        await page.sees("No command came for 900 s", at="aside")
        await look("details of an ended session")

        await used_by_two_accounts(store)
        await page.run("location.hash = '#usage'")
        await page.sees("used up", at="#quotas")
        await page.sees("browserSeconds", at="#usage")
        await look("usage")

        await page.open(f"{await page.run('return location.origin')}/api/docs")
        await page.sees("/api/overview")
        await page.run("for (const each of document.querySelectorAll('summary')) each.click()")
        await look("API")
    await page.open("about:blank")

    assert {view: wrong for view, wrong in found.items() if wrong} == {}


async def test_the_page_of_the_api_has_a_group_for_each_room_with_routes(store: Store, page: Page) -> None:
    api = new_api(store)
    async with front_of(api, store) as url:
        await page.open(f"{url}/api/docs#playwright")
        await page.sees("/api/playwright/queue", at="#playwright")

        groups = await page.run(
            "return [...document.querySelectorAll('main section')].map((each) => "
            "[each.id, each.querySelectorAll('details').length])"
        )
        assert groups == [[room.name, len(routes)] for room, routes in api.groups if routes]
        assert await page.run(
            "return document.querySelector('#playwright').getBoundingClientRect().top < 200"
        )
        await page.run("for (const each of document.querySelectorAll('#accounts summary')) each.click()")
        await page.sees('"account": "web-team"', at="#accounts pre")
        await page.sees("This token does not have the scope", at="#accounts details")
        await page.looks(scheme="light", width=390)
        wide = "const {scrollWidth, clientWidth} = document.documentElement; return scrollWidth > clientWidth"
        assert not await page.run(wide)
        await page.looks_usual()
    await page.open("about:blank")


async def test_axe_finds_nothing_wrong_with_a_page_that_has_lost_the_herd(store: Store, page: Page) -> None:
    async with front_of(new_api(store), store) as url:
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
    async with dashboard(store, page) as writer:
        await writer.serve(browserName="chrome")
        await page.clicks("#sessions tbody tr")
        await page.sees("node has become responsive", at="aside")
        await page.run("document.querySelector('header a').focus()")

        await page.presses(Keys.ESCAPE)

        await page.is_gone("aside")


async def test_a_page_that_has_lost_the_herd_says_so(store: Store, page: Page) -> None:
    async with front_of(new_api(store), store) as url:
        await page.open(url)
        await page.sees("live", at=".connection")

    await page.sees("disconnected", at=".connection")
    await page.sees("The herd cannot be reached.", at=".notice")


async def test_who_is_looking_is_asked_until_it_is_known(store: Store, page: Page) -> None:
    async with front_of(new_api(store), store) as url:
        await page.lacks("*/api/whoami")
        await page.open(url)
        await page.sees("live", at=".connection")
        await page.sees("API", at="nav")
        assert "Jobs" not in await page.run("return document.querySelector('nav').innerText")

        await page.lacks()
        await page.sees("Jobs", at="nav")
        await page.open("about:blank")


async def test_an_answer_that_breaks_off_is_an_error_and_not_an_empty_one(store: Store, page: Page) -> None:
    ask_for_a_while = """
        const done = arguments[arguments.length - 1]
        import("/static/live.js")
          .then(({ ask }) => ask("/api/live", { signal: AbortSignal.timeout(500) }))
          .then((body) => done(`answered ${body}`), (error) => done(error.name))
    """
    async with dashboard(store, page):
        assert await page.wait_for(ask_for_a_while) == "TimeoutError"


async def test_the_page_of_the_api_shows_every_route(store: Store, page: Page) -> None:
    api = new_api(store)
    async with front_of(api, store) as url:
        await page.open(f"{url}/api/docs")

        for route in api.routes:
            await page.sees(public_path(route))
        await page.run("for (const each of document.querySelectorAll('summary')) each.click()")
        await page.sees("list of SessionView")
        await page.sees("Body")
        assert await page.complaints() == []


async def test_a_real_session_is_seen_through_the_front_door(herd: Herd, page: Page) -> None:
    await page.open(herd.url)
    await page.sees("live", at=".connection")

    options = options_for(**{"se:name": "a session of flesh and blood"})
    client = await asyncio.to_thread(webdriver.Remote, herd.url, options=options)
    try:
        await page.sees("a session of flesh and blood", at="#sessions")
        await page.sees("alive", at="#sessions")
        await page.sees("gateway", at="#roles")
    finally:
        await asyncio.to_thread(client.quit)
    assert await page.complaints() == []
