"""A browser server with the machine's real browsers, and stock clients that connect straight to it."""

import asyncio
import http.client
import socket
import stat
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zipfile import ZipFile

import pytest
from playwright.async_api import Browser, BrowserContext, Error, Playwright
from playwright.async_api import TimeoutError as PlaywrightTimeout

from configs import make_config
from herds import DEADLINE
from lending import Lender
from processes import are_gone, family, listeners_of, name_of
from remuda.base.confinement import protection_of
from remuda.base.errors import DriverTimeout, DriverUnavailable, RemudaError
from remuda.fleet.display import FIRST_PORT
from remuda.fleet.leftovers import clear_orphans
from remuda.fleet.permits.chromium import LIBRARIES, PROGRAMS
from remuda.fleet.relay import Address
from remuda.fleet.websocket import WebSocket
from remuda.playwright.checkup import check_up
from screens import cookie_in, desktop, lets_in, needs_xvfb, place_of
from videos import needs_ffmpeg, probe
from waiting import eventually
from workers import Holder, browser_process, driver_process, holder, node_client, processes_of

# In one process, so that only one server of each kind has to start for them.
pytestmark = pytest.mark.xdist_group("playwright server")
in_session = pytest.mark.asyncio(loop_scope="session")

PAGE = "data:text/html,<title>Pasture</title>"
BROWSERS = ["chromium", "firefox"]


def program(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture(scope="module")
def lenders() -> Iterator[dict[str, Lender[Holder]]]:
    """Lend a browser server of each kind."""
    lenders = {each: Lender(partial(start, each), is_usable=is_usable, end=end) for each in BROWSERS}
    yield lenders
    for lender in lenders.values():
        lender.end()


def start(browser: str) -> Holder:
    running = Holder(browser, timeout=DEADLINE, environ={})
    asyncio.run(running.start())
    return running


def is_usable(running: Holder) -> bool:
    """Whether it answers, and all clients of other tests have left."""

    async def look() -> None:
        await check_up(running.endpoint, timeout=DEADLINE)
        await eventually(lambda: running.has_connections(0))

    with suppress(RemudaError, AssertionError, OSError):
        asyncio.run(look())
        return True
    return False


def end(running: Holder) -> None:
    asyncio.run(running.end())


@pytest.fixture
def browser() -> str:
    """The browser of tests that are not about one."""
    return "chromium"


@pytest.fixture
def server(lenders: dict[str, Lender[Holder]], browser: str) -> Holder:
    """A browser server that tests leave as it is, or end."""
    return lenders[browser].lend()


@in_session
@pytest.mark.parametrize("browser", BROWSERS)
async def test_clients_share_a_browser_without_seeing_each_other(
    playwright: Playwright, server: Holder, browser: str
) -> None:
    connect = getattr(playwright, browser).connect
    async with await connect(server.endpoint) as first, await connect(server.endpoint) as second:
        page = await first.new_page()
        await page.goto(PAGE)

        assert await page.title() == "Pasture"
        assert second.contexts == []
        assert await server.has_connections(2)

    await eventually(lambda: server.has_connections(0))


@in_session
@needs_xvfb
@pytest.mark.parametrize("browser", BROWSERS)
async def test_a_browser_with_a_window_has_a_screen_of_its_own_and_not_the_operators(
    playwright: Playwright, browser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISPLAY", ":4242")
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-42")
    monkeypatch.setenv("XAUTHORITY", "/nowhere")
    async with holder(browser, HEADLESS="false") as running:
        (screen,) = [each for each in processes_of(running.directory) if name_of(each) == "Xvfb"]
        host, port = place = place_of(screen)
        environ = driver_process(running.directory).environ()
        async with await getattr(playwright, browser).connect(running.endpoint) as client:
            page = await client.new_page()
            await page.goto(PAGE)

            assert await page.evaluate("outerHeight > innerHeight"), "it has no window"
        assert environ["DISPLAY"] == f"{host}:{port - FIRST_PORT}"
        assert "WAYLAND_DISPLAY" not in environ
        assert not lets_in(place)
        assert lets_in(place, cookie_in(Path(environ["XAUTHORITY"]).read_bytes()))
    assert are_gone([screen])


@pytest.fixture
def operators_display() -> Iterator[str]:
    with desktop() as display:
        yield display


@in_session
@needs_xvfb
async def test_a_browser_opens_its_window_on_the_operators_display_if_that_is_shared(
    playwright: Playwright, operators_display: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISPLAY", operators_display)
    monkeypatch.setenv("REMUDA_SHARE_DISPLAY", "true")
    async with holder(HEADLESS="false") as running:
        async with await playwright.chromium.connect(running.endpoint) as client:
            page = await client.new_page()

            assert await page.evaluate("outerHeight > innerHeight"), "it has no window"
        assert driver_process(running.directory).environ()["DISPLAY"] == operators_display
        assert "Xvfb" not in map(name_of, processes_of(running.directory))


async def test_a_check_goes_down_to_the_browser_and_leaves_nothing(server: Holder) -> None:
    await check_up(server.endpoint, timeout=DEADLINE)

    await eventually(lambda: server.has_connections(0))


@in_session
async def test_errors_speak_the_language_of_their_own_client(playwright: Playwright, server: Holder) -> None:
    connect = playwright.chromium.connect
    async with await connect(server.endpoint) as browser, node_client(server.endpoint) as node:
        page = await browser.new_page()

        # Whoever comes last must not change the language of those who are there.
        assert "getByRole(" in await node.complain()
        await check_up(server.endpoint, timeout=DEADLINE)
        with pytest.raises(PlaywrightTimeout, match=r"get_by_role\("):
            await page.get_by_role("button").click(timeout=1)
        await (await connect(server.endpoint)).close()
        assert "getByRole(" in await node.complain()


@in_session
async def test_traces_of_the_same_name_are_apart(
    playwright: Playwright, server: Holder, tmp_path: Path
) -> None:
    connect = playwright.chromium.connect
    traces = {name: tmp_path / f"{name}.zip" for name in ("first", "second")}
    async with await connect(server.endpoint) as first, await connect(server.endpoint) as second:
        contexts = {"first": await first.new_context(), "second": await second.new_context()}
        for context in contexts.values():
            await context.tracing.start(name="login", screenshots=True, snapshots=True)

        for name, context in contexts.items():
            await (await context.new_page()).goto(f"data:text/html,page of the {name} client")
        for name, context in contexts.items():
            await context.tracing.stop(path=traces[name])

    for name, path in traces.items():
        with ZipFile(path) as trace:
            told = trace.read("trace.trace").decode()
        assert [each for each in traces if f"page of the {each} client" in told] == [name]


@in_session
async def test_clients_that_reuse_a_context_reuse_their_own(playwright: Playwright, server: Holder) -> None:
    connect = playwright.chromium.connect
    async with await connect(server.endpoint) as first, await connect(server.endpoint) as second:
        mine = await reuse_context(first)
        page = await mine.new_page()
        await page.goto(PAGE)

        other = await reuse_context(second)
        await other.new_page()

        assert await page.title() == "Pasture"
        assert mine.pages == [page]
        assert (await reuse_context(first))._impl_obj is mine._impl_obj
        assert len(other.pages) == 1
    async with await connect(server.endpoint) as third:
        devtools = await third.new_browser_cdp_session()

        async def are_contexts_gone() -> bool:
            return not (await devtools.send("Target.getBrowserContexts"))["browserContextIds"]

        await eventually(are_contexts_gone)


@in_session
async def test_contexts_that_open_while_their_client_leaves_are_closed(
    playwright: Playwright, server: Holder
) -> None:
    connect = playwright.chromium.connect
    async with await connect(server.endpoint) as browser:
        leaving = await connect(server.endpoint)
        opening = [asyncio.create_task(leaving.new_context()) for _ in range(5)]
        await asyncio.sleep(0)

        await leaving.close()

        await asyncio.gather(*opening, return_exceptions=True)
        await eventually(lambda: server.has_connections(1))
        devtools = await browser.new_browser_cdp_session()

        async def are_contexts_gone() -> bool:
            return not (await devtools.send("Target.getBrowserContexts"))["browserContextIds"]

        await eventually(are_contexts_gone)


async def reuse_context(browser: Browser) -> BrowserContext:
    """What the option `reuseContext` of @playwright/test asks for between two tests."""
    found = await browser._impl_obj._channel.send("newContextForReuse", None, {})
    return BrowserContext(found._object)


@in_session
async def test_a_chromiums_own_trace_belongs_to_the_client_that_started_it(
    playwright: Playwright, server: Holder
) -> None:
    connect = playwright.chromium.connect
    async with await connect(server.endpoint) as browser:
        async with await connect(server.endpoint) as leaving:
            await leaving.start_tracing()
            with pytest.raises(Error, match="Tracing was not started"):
                await browser.stop_tracing()

        async def has_started() -> bool:
            with suppress(Error):
                await browser.start_tracing()
                return True
            return False

        await eventually(has_started)
        assert b"traceEvents" in await browser.stop_tracing()


@in_session
async def test_what_concerns_the_drivers_own_machine_is_refused(
    playwright: Playwright, server: Holder
) -> None:
    async with await playwright.chromium.connect(server.endpoint) as browser:
        context = await browser.new_context()
        page = await context.new_page()
        await page.set_content("<input type=file webkitdirectory><a download=x href='data:,x'>x</a>")
        async with page.expect_download() as downloading:
            await page.click("a")
        download = await downloading.value
        outside, file = str(server.directory), str(server.directory / "x")
        wishes: list[tuple[Any, str, dict[str, Any]]] = [
            (browser, "startServer", {"title": "x", "host": "0.0.0.0", "port": 0}),
            (browser, "startServer", {"title": "x"}),
            (browser, "newContextForReuse", {"recordVideo": {"dir": outside}}),
            (context, "createTempFiles", {"items": [], "rootDirName": ".."}),
            (context, "showRecorder", {"outputFile": file}),
            (context.tracing, "tracingStart", {"name": "../x"}),
            (page.main_frame, "setInputFiles", {"selector": "input", "localDirectory": "/etc"}),
            (page.main_frame, "setInputFiles", {"selector": "input", "localPaths": ["/etc/passwd"]}),
            (page.main_frame, "drop", {"selector": "input", "localPaths": ["/etc/passwd"]}),
        ]

        for target, method, params in wishes:
            with pytest.raises(Error, match=f"{method} is refused"):
                await target._impl_obj._channel.send(method, None, params)
        with pytest.raises(Error, match="saveAs is refused"):
            await download._impl_obj._artifact._channel.send("saveAs", None, {"path": file})
        assert list(server.directory.glob("x*")) == []
        assert await page.title() == ""


async def test_no_client_can_name_programs_that_extensions_start_or_libraries(server: Holder) -> None:
    # DevTools save a download wherever the browser may write, and load any extension.
    (profile,) = server.directory.glob("*profile*")

    modes = {name: stat.filemode((profile / name).stat().st_mode) for name in (PROGRAMS, *LIBRARIES)}

    assert modes == dict.fromkeys(modes, "dr-x------")


@in_session
@pytest.mark.parametrize("message", ["null", '{"id": 1, "guid": "", "method": "__abort__"}'])
async def test_a_message_that_cannot_be_read_ends_nothing(
    playwright: Playwright, server: Holder, message: str
) -> None:
    async with await playwright.chromium.connect(server.endpoint) as browser:
        url = urlsplit(server.endpoint)
        address = Address(str(url.hostname), url.port or 0)

        with closing(await WebSocket.open(address, url.path, timeout=DEADLINE)) as socket:
            socket.send(message)

            assert "error" in await anext(aiter(socket))
        assert (await browser.new_page()).url == "about:blank"


@in_session
async def test_what_the_driver_fails_at_for_one_client_ends_nothing(
    playwright: Playwright, server: Holder
) -> None:
    connect = playwright.chromium.connect
    async with await connect(server.endpoint) as browser, await connect(server.endpoint) as other:
        context = await other.new_context()

        await context._impl_obj._channel.send("createTempFiles", None, {"items": [{"name": "."}]})

        told = server.directory / "server.log"
        await eventually(lambda: "EISDIR" in told.read_text())
        assert (await browser.new_page()).url == "about:blank"


@needs_ffmpeg
@in_session
@pytest.mark.parametrize("browser", BROWSERS)
async def test_a_client_gets_a_video_made_with_the_machines_ffmpeg(
    playwright: Playwright, server: Holder, browser: str, tmp_path: Path
) -> None:
    async with await getattr(playwright, browser).connect(server.endpoint) as connection:
        context = await connection.new_context(record_video_dir=tmp_path / "unused")
        page = await context.new_page()
        await page.goto(PAGE)
        await context.close()
        assert page.video is not None
        await page.video.save_as(tmp_path / "video.webm")

    shown = probe(tmp_path / "video.webm")
    assert (shown.width, shown.height) == (800, 450)
    assert shown.frames > 0


@pytest.mark.parametrize("browser", BROWSERS)
async def test_what_a_browser_listens_on_takes_connections_of_its_driver_only(
    server: Holder, browser: str
) -> None:
    driver = driver_process(server.directory)
    ports = {each.laddr.port for child in family(driver)[1:] for each in listeners_of(child)}

    # Others are told what to do by a pipe.
    assert len(ports) == (browser == "firefox")
    for port in ports:
        with pytest.raises(TimeoutError):
            socket.create_connection(("127.0.0.1", port), 0.2)
    await check_up(server.endpoint, timeout=DEADLINE)


def test_the_path_is_not_told(server: Holder) -> None:
    address = urlsplit(server.endpoint)
    for path in ("/json", "/", address.path):
        connection = http.client.HTTPConnection(address.netloc, timeout=DEADLINE)
        connection.request("GET", path)
        answer = connection.getresponse()

        assert (answer.status, answer.read()) == (404, b"")
        connection.close()


async def test_a_path_that_is_guessed_leads_nowhere(server: Holder) -> None:
    with pytest.raises(DriverUnavailable, match="400 Bad Request"):
        await check_up(server.endpoint[:-1], timeout=DEADLINE)


@pytest.mark.parametrize("browser", BROWSERS)
async def test_the_server_ends_with_its_browser(server: Holder, browser: str) -> None:
    # Tests that come later, if any, are lent another one.
    browser_process(server.directory).kill()

    await server.ask("ended")
    with pytest.raises(DriverUnavailable):
        await check_up(server.endpoint, timeout=DEADLINE)


@pytest.mark.parametrize("browser", BROWSERS)
async def test_a_stopped_server_leaves_no_process_and_no_file(browser: str) -> None:
    async with holder(browser) as server:
        await check_up(server.endpoint, timeout=DEADLINE)

        await server.ask("stop")

        assert processes_of(server.directory) == []
        assert not server.directory.exists()


async def test_a_browser_that_hangs_fails_the_check_and_is_stopped_all_the_same() -> None:
    async with holder() as server:
        # The driver itself goes on: connections are accepted as if nothing had happened.
        browser_process(server.directory).suspend()
        with pytest.raises(DriverTimeout):
            await check_up(server.endpoint, timeout=1)

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
        assert server.complaint.startswith("DriverTimeout: The browser did not listen within 2 s")
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
        await asyncio.to_thread(clear_orphans, protection_of(make_config()).users)

    await eventually(lambda: are_gone([browser]))
    assert not server.directory.exists()
