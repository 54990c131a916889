"""A walk from inside every browser to everything that its herd listens on: nothing obeys.

Each way by which a client makes a browser connect is tried on listeners of each kind, as root and as an
ordinary user. Beside the herd listen a recorder, which proves that the way leads there, and a Redis without a
password, which proves what the bytes of the client would do.
"""

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Error, async_playwright

from granted import give_token
from herds import DEADLINE, Herd, new_herd
from hostile_wishes import CHROMIUM
from installed import BROWSERS
from reaching import (
    CANARY,
    LINES,
    MASTER,
    PAGE,
    PATIENCE_MS,
    Kind,
    Listener,
    Recorder,
    Remote,
    Site,
    add_on,
    hostile_site,
    listeners_in,
    recording,
)
from remuda.base.reach import is_open_to_all
from remuda.store import Store
from servers import Server, free_port, server
from waiting import eventually

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("reach")]

ORDINARY = 61_001
USERS = ("root", "ordinary") if os.geteuid() == 0 else ("ordinary",)
PASSWORD = "pw"
NAMES = [name for name in BROWSERS if name in (*CHROMIUM, "firefox")]
PATIENCE = 0.2
PAGES_PATIENCE_MS = 8000
"""Many requests at once, and a PAC file that has to be read first, take long on a busy machine."""
# As much as a navigation by a proxy needs.
ELSEWHERE = "http://224.17.17.1/"


@dataclass(frozen=True)
class Beside:
    """What listens beside the herd."""

    recorder: Recorder
    believing: Server
    believing_port: int
    redis: Sequence[str]
    """URLs of those that ask for a password."""
    sentinel: Server
    listeners: Sequence[Listener]
    recorders: Mapping[str, Recorder]
    """By the path of their Unix socket."""
    site: Site


@dataclass(frozen=True)
class Walk:
    """A herd with a browser of each kind."""

    herd: Herd
    redis_url: str
    token: str
    """Empty where none is needed."""
    sessions: Mapping[str, Mapping[str, Any]]
    """What WebDriver says of them, by name of the browser."""
    playwright: Mapping[str, Browser]
    listeners: Sequence[Listener]
    """Those of the herd, and those beside it that must not obey."""
    beside: Beside

    @property
    def headers(self) -> dict[str, str]:
        return headers_of(self.token)

    @property
    def ports(self) -> list[int]:
        """Every port."""
        ours = [self.beside.recorder.port, self.beside.believing_port]
        return [*ours, *(each.port for each in self.listeners if each.port)]

    @property
    def few_ports(self) -> list[int]:
        """One of each kind, for ways that take long, and that of the recorder."""
        found = {each.kind: each.port for each in self.listeners if each.port}
        return [*found.values(), self.beside.recorder.port]

    @property
    def believers(self) -> list[int]:
        """What executes each line that it understands, and the recorder: for ways that a port which drops
        what comes would hold up."""
        kinds = (Kind.REDIS, Kind.SENTINEL)
        return [
            *(each.port for each in self.beside.listeners if each.kind in kinds and each.port),
            self.beside.recorder.port,
        ]

    async def ask(self, name: str, command: str, body: dict[str, Any]) -> Any:
        """What the session of this browser answers."""
        path = f"/session/{self.sessions[name]['sessionId']}/{command}"
        return await ask(self.herd, path, body, self.headers)

    def surprising(self, told: Iterable[tuple[int, int]]) -> list[str]:
        """Those of these ports and statuses that are not as docs/security.md says."""
        kinds = {each.port: each.kind for each in self.listeners}
        # The front door refuses what the browser marks as coming from a page.
        expected = {Kind.FRONT_DOOR: {403, 401 if self.token else 200}, Kind.INTERNAL: {403}}
        # The driver of a shared browser is there for proxies of other software, which know its path.
        expected[Kind.PLAYWRIGHT] = set() if self.token else {404}
        return [
            f"{kinds[port]} at {port}: {status}"
            for port, status in told
            if port in kinds and status not in expected.get(kinds[port], set())
        ]


def headers_of(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


async def ask(herd: Herd, path: str, body: dict[str, Any], headers: Mapping[str, str]) -> Any:
    _, content, _ = await asyncio.to_thread(herd.request, "POST", path, json.dumps(body), **headers)
    return content["value"]


@pytest.fixture(scope="module", params=USERS)
def user(request: pytest.FixtureRequest) -> int | None:
    """The user who starts the herd; None for the one who runs the tests."""
    if request.param == "root" or os.geteuid() != 0:
        return None
    if not is_open_to_all(Path(sys.executable)):
        pytest.skip("another user cannot reach this installation")
    return ORDINARY


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def beside() -> AsyncIterator[Beside]:
    async with AsyncExitStack() as stack:
        enter = stack.enter_context
        ports = [free_port() for _ in range(3)]
        with_password = ("--requirepass", PASSWORD)
        believing = enter(server("--port", str(ports[0])))
        redis = enter(server("--port", str(ports[1]), "--unixsocketperm", "777", *with_password))
        redis.directory.chmod(0o755)
        config = f"sentinel monitor mymaster 127.0.0.1 {ports[1]} 1\nrequirepass {PASSWORD}\n"
        sentinel = enter(server("--port", str(ports[2]), sentinel_config=config))
        # A filter of system calls knows an address of IP by its length, which the first two have as well. A
        # Firefox always names the longest: neither does it reach these.
        paths = [f"/tmp/{token_hex(4)}", f"/tmp/{token_hex(10)}", f"/tmp/remuda-test-{token_hex(4)}"]
        assert [len(path) + len("\0") + 2 for path in paths[:2]] == [16, 28]
        listeners = [
            Listener(Kind.SENTINEL, ports[2]),
            Listener(Kind.REDIS, ports[1]),
            *(Listener(Kind.REDIS, path=path) for path in (str(redis.socket), *paths)),
        ]
        yield Beside(
            recorder=enter(recording()),
            believing=believing,
            believing_port=ports[0],
            redis=[f"redis://:{PASSWORD}@127.0.0.1:{ports[1]}"],
            sentinel=sentinel,
            listeners=listeners,
            recorders={path: enter(recording(path)) for path in paths},
            site=enter(hostile_site()),
        )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def walk(user: int | None, beside: Beside) -> AsyncIterator[Walk]:
    """Root's herd has a Redis at a port, needs tokens, and gives each client of Playwright a browser of its
    own. An ordinary user's has an embedded Redis, needs none, and has clients of Playwright share."""
    async with AsyncExitStack() as stack:
        environ = {"REMUDA_PLAYWRIGHT_WAIT": "120"}
        if user is None:
            redis_url = beside.redis[0]
            options = ["--auth", "on", "--redis", redis_url]
            async with Store(redis_url) as store:
                token = await give_token(store, "walkers")
            herd = stack.enter_context(new_herd("--slots", "3", *options, environ=environ))
        else:
            herd = stack.enter_context(new_herd("--slots", "3", environ=environ, user=user))
            redis_url, token = herd.redis_url, ""
        wanted = {"webSocketUrl": True, "timeouts": {"script": 60_000, "pageLoad": 20_000}}
        wanted["proxy"] = {"proxyType": "pac", "proxyAutoconfigUrl": beside.site.pac}
        # A browser may wait longer for its turn than a session may be idle.
        wanted["remuda:options"] = {"idleTimeout": 1800}
        sessions = {}
        for name in NAMES:
            # A Firefox that is recorded has a screen.
            video = {"se:recordVideo": True} if name == "firefox" else {}
            capabilities = {"alwaysMatch": {"browserName": name, **wanted, **video}}
            sessions[name] = await ask(herd, "/session", {"capabilities": capabilities}, headers_of(token))
            assert "sessionId" in sessions[name], sessions[name]
        client = await stack.enter_async_context(async_playwright())
        door = herd.url.replace("http", "ws")
        opened = {
            name: await getattr(client, name).connect(f"{door}/playwright/{name}", headers=headers_of(token))
            for name in ("chromium", "firefox")
        }
        listeners = [*listeners_in(herd), *beside.listeners]
        yield Walk(herd, redis_url, token, sessions, opened, listeners, beside)


# What must not have happened


async def harm(walk: Walk) -> list[str]:
    """What has obeyed of the herd, and of what is beside it."""
    found = [url for url in {walk.redis_url, *walk.beside.redis} if await obeys(url)]
    async with Store(f"unix://:{PASSWORD}@{walk.beside.sentinel.socket}") as store:
        if MASTER in str(await store.send("SENTINEL", "MASTERS")):
            found.append("the Sentinel")
    _, content, _ = await asyncio.to_thread(walk.herd.request, "GET", "/api/sessions", **walk.headers)
    running = {each["id"] for each in content["sessions"] if each["state"] != "terminated"}
    if running - {each["sessionId"] for each in walk.sessions.values()}:
        found.append(f"the grid: {running}")
    found += [path for path, recorder in walk.beside.recorders.items() if recorder.heard]
    return found


async def obeys(url: str) -> bool:
    """Whether this Redis has executed what the ways bring along."""
    async with Store(url) as store:
        stats = await store.send("INFO", "commandstats")
        return "cmdstat_append:calls=1" in stats or bool(await store.send("EXISTS", CANARY))


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), PATIENCE).close()
    except OSError:
        return False
    return True


# Ways that take a connection to the browser


async def load(remote: Remote, ports: Iterable[int]) -> list[tuple[int, int]]:
    """Ports and statuses of what the browser reads for its DevTools."""
    targets = (await remote.call("Target.getTargets"))["targetInfos"]
    page = next(each["targetId"] for each in targets if each["type"] == "page")
    attached = await remote.call("Target.attachToTarget", targetId=page, flatten=True)
    tree = await remote.call("Page.getFrameTree", session=attached["sessionId"])
    frame = tree["frameTree"]["frame"]["id"]
    options = {"disableCache": True, "includeCredentials": True}

    async def load_one(port: int) -> tuple[int, int]:
        where = {"frameId": frame, "url": f"http://127.0.0.1:{port}/status", "options": options}
        call = remote.call("Network.loadNetworkResource", session=attached["sessionId"], **where)
        found = await asyncio.wait_for(call, PATIENCE_MS / 1000)
        return port, found.get("resource", {}).get("httpStatusCode", 0)

    told = await asyncio.gather(*map(load_one, ports), return_exceptions=True)
    return [each for each in told if not isinstance(each, BaseException) and each[1]]


async def open_by_devtools(remote: Remote, ports: Iterable[int]) -> None:
    async def open_one(proxy: str) -> None:
        made = await remote.call("Target.createBrowserContext", proxyServer=proxy, disposeOnDetach=True)
        context = made["browserContextId"]
        # It has an answer when there is a page, which a proxy that says nothing never gives.
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_MS / 1000):
                await remote.call("Target.createTarget", url=ELSEWHERE, browserContextId=context)

    places = [f"{scheme}://127.0.0.1:{port}" for port in ports for scheme in ("socks4", "https")]
    await asyncio.gather(*map(open_one, places))


async def open_by_bidi(remote: Remote, ports: Iterable[int]) -> None:
    for port in ports:
        place = f"127.0.0.1:{port}"
        for proxy in ({"socksProxy": place, "socksVersion": 5}, {"httpProxy": place}):
            wanted = {"proxyType": "manual", **proxy}
            made = await remote.call("browser.createUserContext", proxy=wanted)
            context = {"userContext": made["userContext"]}
            tab = await remote.call("browsingContext.create", type="tab", **context)
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE_MS / 1000):
                    await remote.call(
                        "browsingContext.navigate", context=tab["context"], url=ELSEWHERE, wait="none"
                    )


async def navigate(browser: Browser, port: int) -> tuple[int, int]:
    """The port, and the status of the page there; 0 if there is none."""
    page = await browser.new_page()
    try:
        answer = await page.goto(f"http://127.0.0.1:{port}/status", timeout=PATIENCE_MS)
        return port, answer.status if answer else 0
    except Error:
        return port, 0
    finally:
        await page.close()


async def ask_by_driver(browser: Browser, port: int) -> tuple[int, int]:
    """The same for a request that Playwright's driver makes beside its browser."""
    context = await browser.new_context()
    try:
        url = f"http://127.0.0.1:{port}/status?by=driver"
        answer = await context.request.get(url, timeout=PATIENCE_MS)
        return port, answer.status
    except Error:
        return port, 0
    finally:
        await context.close()


async def open_by_proxy(browser: Browser, proxy: str) -> None:
    context = await browser.new_context(proxy={"server": proxy})
    try:
        await (await context.new_page()).goto(ELSEWHERE, timeout=PATIENCE_MS)
    except Error:
        pass
    finally:
        await context.close()


# The walk


async def test_all_that_a_herd_listens_on_is_known(walk: Walk) -> None:
    open_ports = {port for port in walk.ports if await asyncio.to_thread(is_open, port)}
    kinds = {kind: {each.port for each in walk.listeners if each.kind is kind} for kind in Kind}

    assert all(kinds.values())
    assert not open_ports & (kinds[Kind.DRIVER] | kinds[Kind.BROWSER])
    # That of a shared browser's driver is for proxies of other software, which know its path.
    assert bool(open_ports & kinds[Kind.PLAYWRIGHT]) == (not walk.token)


# Before the page: a Firefox uses no proxy of a PAC file again soon that has failed.
@pytest.mark.skipif("firefox" not in NAMES, reason="needs Firefox")
async def test_no_add_on_has_anything_obey(walk: Walk) -> None:
    paths = [each.path for each in walk.listeners if each.path.startswith("/")]
    packed = add_on(walk.ports, paths, walk.beside.site)
    walk.beside.site.told.clear()

    await walk.ask("firefox", "moz/addon/install", {"addon": packed, "temporary": True})
    await eventually(lambda: walk.beside.site.told, DEADLINE)

    assert walk.surprising(walk.beside.site.told[0]) == []
    assert await harm(walk) == []
    await walk.beside.recorder.hears("fetch", "socks4", "socks", "http", "https")
    assert await obeys(walk.beside.believing.url)


@pytest.mark.parametrize("name", NAMES)
async def test_no_page_and_no_pac_file_has_anything_obey(walk: Walk, name: str) -> None:
    walk.beside.recorder.heard.clear()

    await walk.ask(name, "url", {"url": walk.beside.site.url})
    args = [walk.ports, walk.few_ports, LINES, PAGES_PATIENCE_MS]
    told = await walk.ask(name, "execute/async", {"script": PAGE, "args": args})

    assert told == []
    assert await harm(walk) == []
    # Not TURN: whether WebRTC tries an address of loopback depends on the machine. Nor a headless shell's
    # proxies: it does not always use the PAC file.
    proxied = [] if name == "chrome-headless-shell" else ["socks4", "socks", "http", "https"]
    await walk.beside.recorder.hears("fetch", "post", "websocket", *proxied)


@pytest.mark.parametrize("name", [name for name in NAMES if name in CHROMIUM])
async def test_no_command_of_devtools_has_anything_obey(walk: Walk, name: str) -> None:
    recorder = walk.beside.recorder
    recorder.heard.clear()
    await walk.ask(name, "url", {"url": walk.beside.site.url})

    async with Remote.open(walk.sessions[name]["capabilities"]["se:cdp"], walk.headers) as remote:
        told = await load(remote, walk.ports)
        await open_by_devtools(remote, walk.believers)
        await recorder.hears("fetch", "socks4", "https")

    assert walk.surprising(told) == []
    assert await harm(walk) == []


# In a Chromium, ChromeDriver makes such a proxy by a command of DevTools.
@pytest.mark.skipif("firefox" not in NAMES, reason="needs Firefox")
async def test_no_proxy_of_bidi_has_anything_obey(walk: Walk) -> None:
    recorder = walk.beside.recorder
    recorder.heard.clear()

    async with Remote.open(walk.sessions["firefox"]["capabilities"]["webSocketUrl"], walk.headers) as remote:
        await open_by_bidi(remote, walk.believers)
        await recorder.hears("socks", "http")

    assert await harm(walk) == []


@pytest.mark.parametrize("name", ["chromium", "firefox"])
async def test_no_client_of_playwright_has_anything_obey(walk: Walk, name: str) -> None:
    recorder, browser = walk.beside.recorder, walk.playwright[name]
    recorder.heard.clear()

    navigated = await asyncio.gather(*(navigate(browser, port) for port in walk.few_ports))
    asked = await asyncio.gather(*(ask_by_driver(browser, port) for port in walk.ports))
    proxies = [f"{scheme}://127.0.0.1:{port}" for port in walk.few_ports for scheme in ("socks5", "http")]
    await asyncio.gather(*(open_by_proxy(browser, proxy) for proxy in proxies))

    assert walk.surprising(each for each in (*navigated, *asked) if each[1]) == []
    assert await harm(walk) == []
    await recorder.hears("fetch", "driver", "socks", "http")
