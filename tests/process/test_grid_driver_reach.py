"""A driver of each family and a page of this machine: the page gets no session, and reaches no browser."""

import asyncio
import ctypes
import errno
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

import psutil
import pytest

from configs import make_config
from hostile_wishes import CHROMIUM
from installed import BROWSERS
from processes import family, kill, listeners_of
from remuda.base.confinement import Confinement, protection_of
from remuda.base.filters import can_close, close_to_others, connect_to_child
from remuda.base.ids import NodeId, new_id
from remuda.base.programs import launched_by
from remuda.base.users import take_identity
from remuda.fleet.relay import Address
from remuda.grid.node import driver as driver_module
from remuda.grid.node.driver import Driver
from remuda.grid.node.payload import driver_request
from screens import needs_xvfb

DEADLINE = 30.0
ORDINARY_USER = 61_001
PR_SET_DUMPABLE = 4
# A dropped packet is not refused: whoever sent it waits.
PATIENCE = 0.2
WANTED = json.dumps({"capabilities": {"alwaysMatch": {}}}).encode()
# In the words of ChromeDriver without its path, of ChromeDriver, and of geckodriver.
REFUSALS = (
    *("unhandled request", "rejected by the server"),
    *("Invalid Origin header", "Invalid Host header", "HTTP method not allowed"),
)
LOCAL, NOBODY, FOREIGN = "http://localhost:8099", "null", "http://evil.example"


LISTEN = """
import socket, time
both = {"family": socket.AF_INET6, "dualstack_ipv6": True}
servers = socket.create_server(("127.0.0.1", 0)), socket.create_server(("", 0), **both)
servers += (socket.create_server(("::1", 0), family=socket.AF_INET6),)
print(*(server.getsockname()[1] for server in servers), flush=True)
time.sleep(600)
"""


ACCEPT = """
import socket, time
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
connection = server.accept()
print("accepted", flush=True)
time.sleep(600)
"""


@asynccontextmanager
async def warm_driver(name: str, *, headless: bool = True) -> AsyncIterator[Driver]:
    # Not `stop` alone: that ends every descendant, and a test process has others than the driver.
    confinement = Confinement(protection_of(make_config(browser_uids="")))
    driver = Driver(NodeId(f"t-{new_id()[:8]}"), BROWSERS[name], confinement, headless=headless)
    await driver.start(timeout=DEADLINE)
    assert driver._process is not None
    try:
        yield driver
    finally:
        kill_tree(driver._process.pid)
        driver._process.wait()
        shutil.rmtree(driver.directory)


def kill_tree(pid: int) -> None:
    parent, *below = family(psutil.Process(pid))
    for each in (parent, *below):
        kill(each)
    psutil.wait_procs(below, DEADLINE)


def ports_of(driver: Driver) -> set[int]:
    """Where the driver, its browser and all that they have started listen."""
    assert driver._process is not None
    started = family(psutil.Process(driver._process.pid))
    return {each.laddr.port for process in started for each in listeners_of(process)}


def send(port: int, method: str, path: str, host: str = "127.0.0.1", **headers: str) -> str:
    """The answer to what a page could send; empty when there is none."""
    body = WANTED if method == "POST" else b""
    named = {"Host": f"127.0.0.1:{port}", "Content-Length": str(len(body)), "Connection": "close"}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    try:
        with socket.create_connection((host, port), timeout=PATIENCE) as connection:
            connection.settimeout(DEADLINE)
            connection.sendall(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body)
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            return f"{answer.status} {answer.read().decode()}"
    except (OSError, http.client.HTTPException):
        return ""


def attack(port: int) -> list[str]:
    """What a page heard but refusals."""
    rebound = f"evil.example:{port}"
    heard = [
        send(port, "POST", "/session", Origin=origin, Content_Type=kind)
        for origin in (LOCAL, NOBODY, FOREIGN, f"http://127.0.0.1:{port}")
        for kind in ("text/plain", "application/json")
    ]
    heard.append(send(port, "POST", "/session", Host=rebound, Origin=f"http://{rebound}"))
    heard.append(send(port, "GET", "/status", Host=rebound))
    heard += [send(port, "GET", path) for path in ("/shutdown", "/sessions")]
    return [each for each in heard if each and not any(words in each for words in REFUSALS)]


def websocket(port: int, origin: str) -> str:
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    key = {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    return send(port, "GET", "/session", Origin=origin, **upgrade, **key)


async def is_untouched(driver: Driver) -> bool:
    """Whether it still runs, has started no browser, and answers its node."""
    assert driver._process is not None
    status, _ = await driver.call("GET", "/status", timeout=DEADLINE)
    return status == 200 and not psutil.Process(driver._process.pid).children()


@pytest.mark.parametrize("name", BROWSERS)
async def test_a_page_cannot_even_connect(name: str) -> None:
    async with warm_driver(name) as driver:
        port = driver.address.port

        assert await asyncio.to_thread(attack, port) == []
        for origin in (LOCAL, FOREIGN):
            assert await asyncio.to_thread(websocket, port, origin) == ""
        for host in ("127.0.0.1", "::1"):
            assert await asyncio.to_thread(send, port, "GET", "/status", host) == ""
        assert await is_untouched(driver)


@pytest.mark.parametrize("name", BROWSERS)
async def test_where_ports_cannot_be_closed_it_gets_no_session_by_http(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int, **_: object) -> bool:
        raise PermissionError(errno.EPERM, "not here")

    monkeypatch.setattr(driver_module, "close_to_others", refuse)
    async with warm_driver(name) as driver:
        assert await asyncio.to_thread(attack, driver.address.port) == []
        assert await is_untouched(driver)


@pytest.mark.parametrize("name", BROWSERS)
async def test_the_browser_of_a_session_is_reached_by_its_node_only(name: str) -> None:
    async with warm_driver(name) as driver:
        # Root's Chromium has no sandbox.
        args = ["--no-sandbox"] if name in CHROMIUM else []
        capabilities = {"webSocketUrl": True} if name != "MiniBrowser" else {}
        wanted = driver_request(
            capabilities, browser=driver.browser, args=args, headless=True, launcher=driver.launcher
        )
        session, actual = await driver.new_session(wanted, timeout=DEADLINE)

        for port in ports_of(driver):
            with pytest.raises(TimeoutError):
                socket.create_connection(("127.0.0.1", port), PATIENCE)
        told = actual.get("goog:chromeOptions", {}).get("debuggerAddress", "")
        assert bool(told) == (name in CHROMIUM)
        if told:
            devtools = Address("127.0.0.1", int(told.rpartition(":")[2]))
            assert devtools.port in ports_of(driver)
            status, _ = await driver.call("GET", "/json/version", to=devtools, timeout=DEADLINE)
            assert status == 200
        # The driver keeps the connection that it has.
        window = json.dumps({"type": "tab"}).encode()
        assert (await driver.call("POST", f"/session/{session}/window/new", window, timeout=DEADLINE))[
            0
        ] == 200
        _, handles = await driver.call("GET", f"/session/{session}/window/handles", timeout=DEADLINE)
        assert len(json.loads(handles)["value"]) == 2


@pytest.mark.skipif("chrome" not in BROWSERS, reason="no Chromium here")
async def test_a_chromium_is_started_as_the_script_around_it_would_start_it() -> None:
    script = BROWSERS["chrome"].binary
    async with warm_driver("chrome") as driver:
        wanted = driver_request(
            {}, browser=driver.browser, args=["--no-sandbox"], headless=True, launcher=driver.launcher
        )
        _, actual = await driver.new_session(wanted, timeout=DEADLINE)

        expected, environ = launched_by(script, driver._environ()) or ([str(script)], {})
        started = psutil.Process(actual["goog:processID"]).cmdline()
        # Chromium writes its arguments anew, an empty value without its sign.
        assert started[: len(expected)] == [word.removesuffix("=") for word in expected]
        assert {"--remote-debugging-pipe", "--remote-debugging-port=0"} < set(started)
        # The browser inherits what its driver has, but may write its title over it.
        assert driver._process is not None
        inherited = psutil.Process(driver._process.pid).environ()
        assert inherited.get("CHROME_WRAPPER") == environ.get("CHROME_WRAPPER")


@needs_xvfb
@pytest.mark.skipif("chrome" not in BROWSERS, reason="no Chromium here")
async def test_in_a_herd_with_windows_a_browser_has_a_screen_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DISPLAY", ":4242")
    async with warm_driver("chrome", headless=False) as driver:
        args = ["--no-sandbox"]
        wanted = driver_request(
            {}, browser=driver.browser, args=args, headless=False, launcher=driver.launcher
        )
        session, _ = await driver.new_session(wanted, timeout=DEADLINE)
        script = json.dumps({"script": "return outerHeight > innerHeight", "args": []}).encode()
        path = f"/session/{session}/execute/sync"
        _, has_window = await driver.call("POST", path, script, timeout=DEADLINE)

        assert json.loads(has_window) == {"value": True}
        assert driver.display is not None
        assert driver.display.name != ":4242"
        driver.display.stop()


async def test_a_closed_port_takes_connections_of_its_parent_only() -> None:
    with subprocess.Popen([sys.executable, "-c", LISTEN], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        ports = child.stdout.readline().split()
        try:
            assert can_close()
            close_to_others(child.pid)

            for host, port in zip(("127.0.0.1", "127.0.0.1", "::1"), map(int, ports), strict=True):
                with pytest.raises(TimeoutError):
                    socket.create_connection((host, port), PATIENCE)
            for port in map(int, ports[:2]):
                async with asyncio.timeout(DEADLINE):
                    (await connect_to_child("127.0.0.1", port)).close()
        finally:
            child.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_no_rights_are_needed_to_close_a_port() -> None:
    pid = os.fork()
    if pid == 0:
        is_closed = False
        try:
            take_identity(ORDINARY_USER)
            # A process that was another user's may not be looked into before it runs a program of its own.
            ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
            is_closed = can_close()
        finally:
            os._exit(0 if is_closed else 1)

    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize("is_friend", [True, False])
async def test_a_stranger_who_came_before_a_port_was_closed_is_hung_up_on(is_friend: bool) -> None:
    with subprocess.Popen([sys.executable, "-c", ACCEPT], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        try:
            with socket.create_connection(("127.0.0.1", port), DEADLINE) as early:
                assert child.stdout.readline() == b"accepted\n"
                close_to_others(child.pid, friend=os.getpid() if is_friend else None)

                early.settimeout(PATIENCE if is_friend else DEADLINE)
                with pytest.raises(TimeoutError) if is_friend else nullcontext():
                    assert early.recv(1) == b""
        finally:
            child.kill()
