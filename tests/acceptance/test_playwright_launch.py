"""Stock Playwright clients with a browser of their own: launch options, and the client's own network."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import psutil
import pytest
from playwright.async_api import Error, Playwright

from herds import Herd
from processes import are_gone
from remuda.keyspace.playwright import ACTIVE_CONNECTIONS
from remuda.store import Store
from screens import lets_in, needs_xvfb, place_of, screens_below
from waiting import eventually

# In one process, so that only one herd has to start a browser of each kind for them.
pytestmark = [
    pytest.mark.xdist_group("acceptance playwright"),
    pytest.mark.asyncio(loop_scope="session"),
]


def socket_of(herd: Herd) -> str:
    return herd.url.replace("http", "ws")


def options(**given: Any) -> dict[str, str]:
    return {"x-playwright-launch-options": json.dumps(given)}


async def places(herd: Herd, browser: str) -> list[int]:
    """How many connections each worker of such browsers has, by the documented counter."""
    async with Store(herd.redis_url) as store:
        counts = await store.hgetall(ACTIVE_CONNECTIONS())
    return [int(count) for field, count in counts.items() if field.startswith(f"{browser}:")]


@pytest.mark.parametrize("address", ["ws://{}/playwright/chromium?own=true", "http://{}?own=true"])
async def test_a_browser_of_ones_own_is_counted_and_ends_with_the_connection(
    herd: Herd, playwright: Playwright, address: str
) -> None:
    url = address.format(herd.url.partition("//")[2])
    async with await playwright.chromium.connect(url) as browser:
        page = await browser.new_page()
        await page.goto("data:text/html,<title>mine</title>")

        assert await page.title() == "mine"
        assert await places(herd, "chromium-own") == [1]
    await eventually(lambda: is_free(herd, "chromium-own"))


async def is_free(herd: Herd, browser: str) -> bool:
    return not any(await places(herd, browser))


@dataclass(frozen=True)
class Visit:
    """A request that came in: its first line, and the command of the process that sent it."""

    line: str
    sender: Sequence[str]


@asynccontextmanager
async def answering(body: str) -> AsyncIterator[tuple[int, list[Visit]]]:
    """A server or proxy that says this to everybody; its port, and who has come."""
    visits: list[Visit] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        ends = writer.get_extra_info("peername"), writer.get_extra_info("sockname")
        visits.append(Visit(head.decode().partition("\r\n")[0], await asyncio.to_thread(command_at, *ends)))
        page = body.encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(page), page)
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], visits


def command_at(near: tuple[str, int], far: tuple[str, int]) -> Sequence[str]:
    """The command line of the process whose socket is the near end; empty if it has closed that. Its port
    alone may have others too."""
    sockets = psutil.net_connections("tcp")
    pids = {each.pid for each in sockets if (each.laddr, each.raddr) == (near, far) and each.pid}
    return psutil.Process(pids.pop()).cmdline() if pids else ()


@pytest.mark.parametrize(
    ("name", "path", "agent"),
    [
        # Options make a browser one's own by themselves.
        ("chromium", "", {"args": ["--user-agent=Mule"]}),
        (
            "firefox",
            "/playwright/firefox?own=true",
            {"firefoxUserPrefs": {"general.useragent.override": "Mule"}},
        ),
    ],
)
async def test_launch_options_take_effect_in_a_browser_of_ones_own(
    herd: Herd, playwright: Playwright, name: str, path: str, agent: dict[str, Any]
) -> None:
    async with answering("<title>by way of the proxy</title>") as (port, visits):
        headers = options(proxy={"server": f"http://127.0.0.1:{port}"}, **agent)
        connect = getattr(playwright, name).connect
        async with await connect(socket_of(herd) + path, headers=headers) as browser:
            page = await browser.new_page()
            await page.goto("http://pasture.invalid/")

            assert await page.title() == "by way of the proxy"
            assert "GET http://pasture.invalid/ HTTP/1.1" in [visit.line for visit in visits]
            assert await page.evaluate("navigator.userAgent") == "Mule"
            assert await places(herd, f"{name}-own") == [1]
    await eventually(lambda: is_free(herd, f"{name}-own"))


@needs_xvfb
async def test_a_window_needs_no_display_of_the_operators(herd: Herd, playwright: Playwright) -> None:
    headers = options(headless=False)
    async with await playwright.chromium.connect(socket_of(herd), headers=headers) as browser:
        page = await browser.new_page()

        assert "Headless" not in await page.evaluate("navigator.userAgent")
        (screen,) = screens_below(psutil.Process(herd.process.pid))
        assert not lets_in(place_of(screen))
    await eventually(lambda: are_gone([screen]))


async def test_a_forbidden_argument_is_refused_by_its_name(herd: Herd, playwright: Playwright) -> None:
    with pytest.raises(Error, match="400 Bad Request") as refusal:
        await playwright.chromium.connect(
            socket_of(herd), headers=options(args=["--gpu-launcher=touch /tmp/x"])
        )

    assert "'--gpu-launcher=touch /tmp/x'" in str(refusal.value)


@pytest.mark.parametrize("name", ["chromium", "firefox"])
async def test_expose_network_leads_through_the_client(herd: Herd, playwright: Playwright, name: str) -> None:
    connect = getattr(playwright, name).connect
    async with (
        answering("<title>at the client's</title>") as (port, visits),
        await connect(socket_of(herd), expose_network="*") as browser,
    ):
        page = await browser.new_page()
        await page.goto(f"http://127.0.0.1:{port}/")

        assert await page.title() == "at the client's"
        # The driver of the client, not that of the worker.
        assert "run-driver" in visits[0].sender
