"""A warm driver of each family and a page of this machine: the page gets no session, and ends none."""

import asyncio
import errno
import http.client
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psutil
import pytest

from installed import BROWSERS
from remuda.base.config import Config
from remuda.base.confinement import Confinement, protection_of
from remuda.base.filters import admit_only, can_filter
from remuda.base.hosts import hidden_loopback
from remuda.base.ids import NodeId, new_id
from remuda.grid.node import driver as driver_module
from remuda.grid.node.driver import Driver

DEADLINE = 30.0
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
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
time.sleep(600)
"""


@asynccontextmanager
async def warm_driver(name: str) -> AsyncIterator[Driver]:
    # Not `stop` alone: that ends every descendant, and a test process has others than the driver.
    confinement = Confinement(protection_of(Config(browser_uids="")))
    driver = Driver(NodeId(f"t-{new_id()[:8]}"), BROWSERS[name], confinement)
    await driver.start(timeout=DEADLINE)
    assert driver._process is not None
    try:
        yield driver
    finally:
        driver._process.kill()
        driver._process.wait()
        driver.directory.joinpath("driver.log").unlink()
        driver.directory.rmdir()


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
async def test_where_ports_cannot_be_filtered_it_gets_no_session_by_http(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: str, *, pid: int) -> None:
        raise PermissionError(errno.EPERM, "not here")

    monkeypatch.setattr(driver_module, "admit_only", refuse)
    async with warm_driver(name) as driver:
        assert await asyncio.to_thread(attack, driver.address.port) == []
        assert await is_untouched(driver)


async def test_a_filtered_port_takes_connections_from_one_address_only() -> None:
    source = hidden_loopback()
    with subprocess.Popen([sys.executable, "-c", LISTEN], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        try:
            assert can_filter()
            admit_only(source, pid=child.pid)

            socket.create_connection(("127.0.0.1", port), DEADLINE, source_address=(source, 0)).close()
            with pytest.raises(TimeoutError):
                socket.create_connection(("127.0.0.1", port), PATIENCE)
            with pytest.raises(TimeoutError):
                socket.create_connection(("127.0.0.1", port), PATIENCE, source_address=(hidden_loopback(), 0))
        finally:
            child.kill()
