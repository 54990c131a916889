"""A browser server with the machine's real browsers, and stock clients that connect straight to it."""

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import TimeoutError as PlaywrightTimeout
from playwright.async_api import async_playwright

from herds import DEADLINE
from processes import are_gone
from remuda.base.errors import DriverTimeout, DriverUnavailable
from remuda.fleet.leftovers import clear_orphans
from remuda.playwright.checkup import check_up
from videos import needs_ffmpeg, probe
from waiting import eventually
from workers import browser_process, holder, node_client, processes_of

PAGE = "data:text/html,<title>Pasture</title>"


def program(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("browser", ["chromium", "firefox"])
async def test_clients_share_a_browser_without_seeing_each_other(browser: str) -> None:
    async with holder(browser) as server, async_playwright() as playwright:
        connect = getattr(playwright, browser).connect
        first, second = await connect(server.endpoint), await connect(server.endpoint)
        page = await first.new_page()
        await page.goto(PAGE)

        assert await page.title() == "Pasture"
        assert second.contexts == []
        assert await server.has_connections(2)

        await first.close()
        await second.close()
        await eventually(lambda: server.has_connections(0))


async def test_a_check_goes_down_to_the_browser_and_leaves_nothing() -> None:
    async with holder() as server:
        await check_up(server.endpoint, timeout=DEADLINE)

        await eventually(lambda: server.has_connections(0))


async def test_errors_speak_the_language_of_their_own_client() -> None:
    async with holder() as server, async_playwright() as playwright, node_client(server.endpoint) as node:
        page = await (await playwright.chromium.connect(server.endpoint)).new_page()

        # Whoever comes last must not change the language of those who are there.
        assert "getByRole(" in await node.complain()
        await check_up(server.endpoint, timeout=DEADLINE)
        with pytest.raises(PlaywrightTimeout, match=r"get_by_role\("):
            await page.get_by_role("button").click(timeout=1)
        await (await playwright.chromium.connect(server.endpoint)).close()
        assert "getByRole(" in await node.complain()


@needs_ffmpeg
@pytest.mark.parametrize("browser", ["chromium", "firefox"])
async def test_a_client_gets_a_video_made_with_the_machines_ffmpeg(browser: str, tmp_path: Path) -> None:
    async with holder(browser) as server, async_playwright() as playwright:
        connection = await getattr(playwright, browser).connect(server.endpoint)
        context = await connection.new_context(record_video_dir=tmp_path / "unused")
        page = await context.new_page()
        await page.goto(PAGE)
        await context.close()
        assert page.video is not None
        await page.video.save_as(tmp_path / "video.webm")

    shown = probe(tmp_path / "video.webm")
    assert (shown.width, shown.height) == (800, 450)
    assert shown.frames > 0


async def test_a_browser_that_hangs_fails_the_check() -> None:
    async with holder() as server:
        # The driver itself goes on: connections are accepted as if nothing had happened.
        browser_process(server.directory).suspend()

        with pytest.raises(DriverTimeout):
            await check_up(server.endpoint, timeout=1)


async def test_a_path_that_is_guessed_leads_nowhere() -> None:
    async with holder() as server:
        with pytest.raises(DriverUnavailable, match="400 Bad Request"):
            await check_up(server.endpoint[:-1], timeout=DEADLINE)


@pytest.mark.parametrize("browser", ["chromium", "firefox"])
async def test_the_server_ends_with_its_browser(browser: str) -> None:
    async with holder(browser) as server:
        browser_process(server.directory).kill()

        await server.ask("ended")
        with pytest.raises(DriverUnavailable):
            await check_up(server.endpoint, timeout=DEADLINE)


@pytest.mark.parametrize("browser", ["chromium", "firefox"])
async def test_a_stopped_server_leaves_no_process_and_no_file(browser: str) -> None:
    async with holder(browser) as server:
        await check_up(server.endpoint, timeout=DEADLINE)

        await server.ask("stop")

        assert processes_of(server.directory) == []
        assert not server.directory.exists()


async def test_a_browser_that_hangs_is_stopped_all_the_same() -> None:
    async with holder() as server:
        browser_process(server.directory).suspend()

        await server.ask("stop")

        assert processes_of(server.directory) == []
        assert not server.directory.exists()


async def test_a_browser_that_cannot_start_says_why(tmp_path: Path) -> None:
    broken = program(tmp_path / "chromium", "exit 3")

    async with holder(REMUDA_CHROMIUM=broken) as server:
        assert server.complaint.startswith("DriverUnavailable: The browser ended at once: ")
        assert "Failed to launch" in server.complaint


async def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    async with holder(REMUDA_CHROMIUM=str(tmp_path / "none")) as server:
        assert str(tmp_path / "none") in server.complaint


async def test_a_browser_that_never_gets_ready_is_given_up(tmp_path: Path) -> None:
    hanging = program(tmp_path / "chromium", "exec sleep 600")

    # As whoever runs the tests: another user does not get to a program of theirs.
    async with holder(timeout=2, REMUDA_CHROMIUM=hanging, REMUDA_BROWSER_UIDS="") as server:
        assert server.complaint.startswith("DriverTimeout: The browser does not listen after 2 s")
        await server.ask("stop")
        assert processes_of(server.directory) == []


@pytest.mark.parametrize("is_hanging", [False, True])
async def test_what_a_killed_holder_leaves_is_cleared_away(is_hanging: bool) -> None:
    async with holder() as server:
        browser = browser_process(server.directory)
        if is_hanging:
            browser.suspend()

        server.process.kill()
        await asyncio.to_thread(server.process.wait)
        if not is_hanging:
            # The kernel kills the driver with its parent, and the browser ends with the driver.
            await eventually(lambda: are_gone([browser]))
        await asyncio.to_thread(clear_orphans)

    await eventually(lambda: are_gone([browser]))
    assert not server.directory.exists()
