"""A herd on two machines: Redis with Sentinel, gateway and manager on one, the browsers on the other.

All roles but one speak TLS, as during an upgrade.
"""

import asyncio
import logging
import os
import time
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

import aiohttp
import pytest
from playwright.async_api import async_playwright

from grids import check_counters, check_slots
from herds import DEADLINE
from installed import BROWSERS
from machines import WANTED, Eavesdropper, Machine, Network, Process, Riders, SpreadHerd, spread_herd
from remuda.keyspace import grid
from remuda.keyspace.fleet import SECRET
from remuda.store import Store
from remuda.store.census import take_census
from waiting import eventually
from workers import entries

pytestmark = [
    pytest.mark.xdist_group("machines"),
    pytest.mark.skipif("chrome-headless-shell" not in BROWSERS, reason="no headless shell: run make setup"),
]

log = logging.getLogger(__name__)
log.setLevel(logging.INFO)

ROUNDS = range(int(os.environ.get("SOAK_ROUNDS", "1")))
"""How often Redis changes hands: SOAK_ROUNDS=5 makes sure of it, and `-rP` shows how long each time took."""
NEW_SESSIONS_WITHIN = 10.0
BUSY = 10.0
WITHOUT_TLS = {"REMUDA_INTERNAL_TLS_CERT": "", "REMUDA_INTERNAL_TLS_KEY": ""}


class Layout(NamedTuple):
    """What the tests of this module share."""

    herd: SpreadHerd
    network: Network
    back: Machine
    manager: Process
    gateway: Process
    orchestrators: list[Process]
    ids: list[str]


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    with spread_herd(tmp_path_factory.mktemp("machines")) as (herd, network, back):
        herd.encrypt(herd.front, back)
        manager, gateway = herd.run_manager(), herd.run_gateway()
        running = [run_orchestrator(herd, back, each) for each in ENVIRONS]
        herd.run(back, "worker")
        ids = [(each.log.parent / "data/orchestrator-id").read_text() for each in running]
        yield Layout(herd, network, back, manager, gateway, running, ids)


ENVIRONS: list[dict[str, str]] = [{}, WITHOUT_TLS]
"""Of the two orchestrators."""


def run_orchestrator(herd: SpreadHerd, machine: Machine, environ: dict[str, str], *args: str) -> Process:
    return herd.run(machine, "orchestrator", args=("--slots", "1", *args), **environ)


async def check_books(layout: Layout) -> None:
    """Every slot is free, every counter is right, and Redis holds only what is declared."""
    async with Store(layout.herd.redis_url) as store:

        async def all_free() -> bool:
            free = [await store.llen(grid.ORCHESTRATOR_SLOTS_AVAILABLE(each)) for each in layout.ids]
            return free == [1, 1]

        try:
            await eventually(all_free, DEADLINE)
        except AssertionError as error:
            holders = [await store.hgetall(grid.ORCHESTRATOR_HOLDERS(each)) for each in layout.ids]
            raise AssertionError(f"{error}\nheld: {holders}\n{layout.herd.logs()}") from error
        await check_slots(store, layout.ids)
        await check_counters(store)
        assert await take_census(store) == []


async def test_sessions_of_both_kinds_run_on_the_other_machine(layout: Layout) -> None:
    session = await create_without_tls(layout)
    async with Store(layout.herd.redis_url) as store, async_playwright() as playwright:
        upstream = await store.hgetall(grid.SESSION_UPSTREAM(session))
        (worker,) = (await entries(store)).values()
        url = f"ws://{layout.herd.front.address}:4444/"
        browser = await playwright.chromium.connect(url, timeout=DEADLINE * 1000)
        page = await browser.new_page()
        await page.goto("data:text/html,<title>Pasture</title>")

        assert await page.title() == "Pasture"
        assert upstream["host"] == layout.back.address
        assert urlsplit(worker["wsEndpoint"]).hostname == layout.back.address
        # What listens on the network answers nothing to those who do not know the herd's secret.
        assert await _status(upstream["host"], int(upstream["port"])) == 403
        await browser.close()
    assert layout.herd.request("DELETE", f"/session/{session}")[0] == 200
    await check_books(layout)


async def _status(host: str, port: int) -> int:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET /json HTTP/1.1\r\nHost: a\r\n\r\n")
    line = await reader.readline()
    writer.close()
    return int(line.split()[1])


async def create_without_tls(layout: Layout) -> str:
    """A session on the orchestrator without TLS; the slot of the other one is free."""
    both = [layout.herd.create() for _ in ENVIRONS]
    async with Store(layout.herd.redis_url) as store:
        schemes = [await store.get(grid.SESSION_SCHEME(each)) for each in both]
    assert sorted(schemes, key=str) == [None, "https"]
    encrypted = both[schemes.index("https")]
    assert layout.herd.request("DELETE", f"/session/{encrypted}")[0] == 200
    return both[schemes.index(None)]


async def test_sessions_of_every_kind_are_encrypted_between_machines(layout: Layout) -> None:
    herd, place = layout.herd, f"{layout.herd.front.address}:4444"
    other = await create_without_tls(layout)
    async with Store(herd.redis_url) as store, async_playwright() as playwright:
        secret = (await store.get(SECRET()) or "").encode()
        upstream = await store.hgetall(grid.SESSION_UPSTREAM(other))
        (worker,) = (await entries(store)).values()
        with Eavesdropper(layout.back) as eavesdropper:
            herd.ride()
            for browser in (
                await playwright.chromium.connect(f"ws://{place}/", timeout=DEADLINE * 1000),
                await playwright.chromium.connect_over_cdp(f"ws://{place}/cdp"),
            ):
                page = await browser.new_page()
                await page.goto("data:text/html,<title>Pasture</title>")
                assert await page.title() == "Pasture"
                await browser.close()
            await ride_bidi(f"ws://{place}/session")
            heard = bytes(eavesdropper.heard)
            # What is not encrypted would have been heard.
            _, writer = await asyncio.open_connection(upstream["host"], int(upstream["port"]))
            writer.write(secret)
            await eventually(lambda: secret in eavesdropper.heard, DEADLINE)
            writer.close()

    assert worker["wsEndpoint"].startswith(f"wss://{layout.back.address}:")
    assert len(heard) > 10_000
    for word in (secret, b"Pasture", b"sessionId", b"HTTP/1.1"):
        assert word not in heard
    assert herd.request("DELETE", f"/session/{other}")[0] == 200
    await check_books(layout)


async def ride_bidi(url: str) -> None:
    """A session over WebDriver BiDi alone, from its creation to its end."""
    async with aiohttp.ClientSession() as client, client.ws_connect(url, max_msg_size=0) as socket:
        for number, (method, params) in enumerate((("session.new", WANTED), ("session.end", {}))):
            await socket.send_json({"id": number, "method": method, "params": params})
            answer = await socket.receive_json(timeout=DEADLINE)
            assert (answer["id"], answer["type"]) == (number, "success"), answer


async def test_a_partition_of_half_a_minute_leaves_every_slot_and_session_true(layout: Layout) -> None:
    session = layout.herd.create()

    with layout.network.partition(layout.back):
        began = time.monotonic()
        with pytest.raises((AssertionError, TimeoutError)):
            layout.herd.create(timeout=2.0)
        # The gateway answers for itself, whatever it cannot reach.
        assert layout.herd.request("GET", "/healthz", timeout=2.0)[0] == 200
        await asyncio.sleep(30 - (time.monotonic() - began))

    await eventually(lambda: _answers(layout, session), DEADLINE)
    assert layout.herd.request("DELETE", f"/session/{session}")[0] == 200
    await check_books(layout)
    layout.herd.ride()


def _answers(layout: Layout, session: str) -> bool:
    try:
        return bool(layout.herd.request("GET", f"/session/{session}/url", timeout=5.0)[0] == 200)
    except OSError:
        return False


@pytest.mark.parametrize("_round", ROUNDS)
async def test_a_fail_over_under_load_loses_no_slot(layout: Layout, _round: int) -> None:
    herd = layout.herd
    await eventually(herd.has_replicas, DEADLINE)
    port = herd.master_port()
    with Riders(herd, 2) as riders:
        usual = riders.wait_for(3)
        herd.ask_sentinel("failover", "main")
        await is_followed(herd, riders, port, usual)
    await check_books(layout)


@pytest.mark.parametrize("_round", ROUNDS)
async def test_the_death_of_the_master_under_load_loses_no_slot(layout: Layout, _round: int) -> None:
    herd = layout.herd
    await eventually(herd.has_replicas, DEADLINE)
    port = herd.master_port()
    with Riders(herd, 2) as riders:
        usual = riders.wait_for(3)
        herd.redises[port].kill()
        await is_followed(herd, riders, port, usual)
    herd.revive_redis(port)
    await check_books(layout)


async def is_followed(herd: SpreadHerd, riders: Riders, old: int, usual: float) -> None:
    """Returns when there is another master than the old one, and three sessions were created with it. A busy
    machine may take longer for that by a few times what it usually takes for three sessions."""
    began = time.monotonic()
    await eventually(lambda: herd.master_port() != old, DEADLINE)
    switched = time.monotonic() - began
    took = await asyncio.to_thread(riders.wait_for, 3)
    log.info(
        "new master: %.1f s, three sessions: %.1f s, usually %.1f s, failed: %s",
        *(switched, took, usual, riders.failures),
    )
    assert took < NEW_SESSIONS_WITHIN + BUSY * usual


async def test_every_role_is_replaced_under_load_without_a_failure(layout: Layout) -> None:
    herd = layout.herd
    with Riders(herd, 2) as riders:
        riders.wait_for(1)
        for old, start in ((layout.manager, herd.run_manager), (layout.gateway, herd.run_gateway)):
            start()
            assert old.leave() == 0
            riders.wait_for(2)
        for each, environ in zip(layout.orchestrators, ENVIRONS, strict=True):
            data = str(each.log.parent / "data")
            assert each.leave() == 0
            run_orchestrator(herd, layout.back, environ, "--data", data)
            riders.wait_for(2)

    assert riders.failures == [], herd.logs()
    await check_books(layout)
