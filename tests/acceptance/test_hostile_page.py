"""Pages that a browser of this machine shows, one of the herd's own perhaps: they get no browser."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import urlopen

import psutil
import pytest

from grids import all_sessions
from herds import DEADLINE, Herd
from processes import children_of, listeners_of, name_of
from remuda.keyspace import grid
from remuda.keyspace.fleet import SECRET
from remuda.store import Store
from waiting import eventually

SLOTS = 2
"""Of the herd that the acceptance tests share."""
DRIVERS = ("chromedriver", "geckodriver", "WebKitWebDriver")
# What a page can send without being asked first, what it asks for and should not get, and what it can open.
ATTACK = """
const [ports, done] = arguments;
// A port that drops what comes from elsewhere does not say so.
const PATIENCE = 500;
const body = JSON.stringify({capabilities: {alwaysMatch: {browserName: "chrome"}}});
const forms = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"];
const requests = [
  ...["/session", "/wd/hub/session"].flatMap((path) => forms.map((type) =>
    [path, {method: "POST", mode: "no-cors", body, headers: {"Content-Type": type}}])),
  ["/session", {method: "POST", body, headers: {"Content-Type": "application/json"}}],
  ["/json/new?about:blank", {method: "PUT"}],
  ...["/status", "/sessions", "/api/sessions", "/json", "/json/list"].map((path) => [path, {}]),
  ["/shutdown", {mode: "no-cors"}],
];
const sockets = ["/", "/cdp", "/playwright/chromium", "/session"];
const told = [];
let sent = 0;

async function attack(host, port) {
  for (const [path, options] of requests) {
    try {
      const signal = AbortSignal.timeout(PATIENCE);
      const answer = await fetch(`http://${host}:${port}${path}`, {...options, signal});
      if (answer.ok) told.push(`${port}${path}: ${await answer.text()}`);
    } catch {}
    sent += 1;
  }
  for (const path of sockets) {
    await new Promise((resolve) => {
      const socket = new WebSocket(`ws://${host}:${port}${path}`);
      socket.onopen = () => { told.push(`${port}${path} is open`); socket.close(); };
      socket.onclose = resolve;
      setTimeout(resolve, PATIENCE);
    });
    sent += 1;
  }
}

const all = ports.flatMap((port) => ["127.0.0.1", "localhost"].map((host) => attack(host, port)));
Promise.allSettled(all).then(() => done([sent, told]));
"""


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<title>hostile</title>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def page() -> Iterator[str]:
    """The URL of a page of this machine that is none of the herd's."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_address[1]}/"
        server.shutdown()


def open_ports(herd: Herd) -> dict[int, str]:
    """Every port of IPv4 that a process of the herd listens on, and the process."""
    found = {}
    for process in herd.processes():
        for each in listeners_of(process):
            if each.family == socket.AF_INET:
                found[each.laddr.port] = name_of(process)
    return found


def drivers_of(herd: Herd) -> set[psutil.Process]:
    return {each for each in herd.processes() if name_of(each).startswith(DRIVERS)}


def browsers_of(herd: Herd) -> int:
    """How many browsers its drivers have started."""
    return sum(len(children_of(each)) for each in drivers_of(herd))


async def is_at_rest(herd: Herd) -> bool:
    """Whether one session runs, those before it have left nothing, and one node is warm for the next."""
    async with Store(herd.redis_url) as store:
        (orchestrator,) = await store.smembers(grid.ORCHESTRATORS())
        free = await store.llen(grid.ORCHESTRATOR_SLOTS_AVAILABLE(orchestrator))
    return free == SLOTS - 1 and len(drivers_of(herd)) == 2 and browsers_of(herd) == 1


async def sessions_of(herd: Herd) -> set[str]:
    async with Store(herd.redis_url) as store:
        return set(await all_sessions(store))


async def test_it_gets_no_browser_and_learns_nothing(herd: Herd, page: str) -> None:
    client = WebDriver(herd)
    await client.open("chrome")
    try:
        await client.call("/url", {"url": page})
        await eventually(lambda: is_at_rest(herd), DEADLINE)
        drivers, sessions, ports = drivers_of(herd), await sessions_of(herd), open_ports(herd)
        assert {"chromedriver"} < set(ports.values())

        sent, told = await client.call("/execute/async", {"script": ATTACK, "args": [list(ports)]})

        assert sent == len(ports) * 2 * 18
        assert told == []
        assert await sessions_of(herd) == sessions
        assert drivers <= drivers_of(herd)
        assert browsers_of(herd) == 1
    finally:
        await client.close()


class WebDriver:
    """A session at the front door."""

    def __init__(self, herd: Herd) -> None:
        self._herd = herd
        self._path = "/session"

    async def call(self, path: str, body: Any, *, method: str = "POST") -> Any:
        status, content, _ = await asyncio.to_thread(
            self._herd.request, method, self._path + path, None if body is None else json.dumps(body)
        )
        assert status == 200, content
        return content["value"]

    async def open(self, browser: str) -> None:
        wanted = {"browserName": browser, "timeouts": {"script": 120_000}}
        opened = await self.call("", {"capabilities": {"alwaysMatch": wanted}})
        self._path = f"/session/{opened['sessionId']}"

    async def close(self) -> None:
        await self.call("", None, method="DELETE")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://localhost:8099"},
        {"Origin": "null"},
        {"Host": "evil.example"},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
    ],
    ids=lambda headers: " ".join(headers.values()),
)
async def test_no_session_is_made_for_what_a_page_can_send(herd: Herd, headers: dict[str, str]) -> None:
    wanted = json.dumps({"capabilities": {"alwaysMatch": {"browserName": "chrome"}}})
    before = await sessions_of(herd)

    status, content, _ = await asyncio.to_thread(herd.request, "POST", "/session", wanted, **headers)

    assert status == (400 if "Content-Type" in headers else 403)
    assert content["value"].keys() == {"error", "message", "stacktrace"}
    assert await sessions_of(herd) == before


async def test_the_herds_secret_is_nowhere_to_be_seen(herd: Herd) -> None:
    async with Store(herd.redis_url) as store:
        secret = await store.get(SECRET())
    assert secret

    for path in ("/status", "/metrics", "/api/sessions", "/api/overview", "/graphql?query={grid{uri}}"):
        told = await asyncio.to_thread(read, herd, path)
        assert secret not in told, path
    assert secret not in "\n".join(herd.lines) + herd.log()
    for process in herd.processes():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            assert secret not in " ".join([*process.cmdline(), *process.environ().values()])


def read(herd: Herd, path: str) -> str:
    with urlopen(herd.url + path, timeout=DEADLINE) as answer:
        body: bytes = answer.read()
        return f"{answer.headers}{body.decode()}"
