"""What is thrown at a server: many requests, one request at a time, WebSocket messages, idle WebSockets."""

import asyncio
import re
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import cast

import uvloop

from bench.peers import ECHO_PATH, HTTP_PATH, Peer

CONNECTIONS = 32
UNVERIFIED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
UNVERIFIED.check_hostname = False
UNVERIFIED.verify_mode = ssl.CERT_NONE
# A masked text frame: FIN and opcode, mask bit and length, key, 64 bytes.
FRAME = b"\x81\xc0" + b"key!" + b"m" * 64
HANDSHAKE = (
    f"GET {ECHO_PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
).encode()
REQUEST = f"GET {HTTP_PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


def requests_per_second(peer: Peer, seconds: int) -> float:
    """What wrk counts with one thread and keep-alive; fails on any answer that is not 2xx."""
    url = f"{peer.scheme}://127.0.0.1:{peer.port}{HTTP_PATH}"
    shown = ["-H", f"Authorization: Bearer {peer.token}"] if peer.token else []
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", *shown, url]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds + 30).stdout
    rate = re.search(r"Requests/sec:\s+([0-9.]+)", found)
    if rate is None or "Non-2xx" in found or "Socket errors" in found:
        raise SystemExit(f"wrk against {peer.name} went wrong:\n{found}")
    return float(rate[1])


def latencies_ms(peers: list[Peer], rounds: int) -> dict[str, float]:
    """The median time of one request, the peers taking turns so that noise hits all alike."""
    sockets = {peer.name: _connect(peer) for peer in peers}
    times: dict[str, list[float]] = {peer.name: [] for peer in peers}
    requests = {peer.name: _with_token(REQUEST, peer) for peer in peers}
    for _ in range(rounds):
        for name, sock in sockets.items():
            request = requests[name]
            begin = time.perf_counter()
            sock.sendall(request)
            sock.recv(65536)
            times[name].append((time.perf_counter() - begin) * 1000)
    for sock in sockets.values():
        sock.close()
    return {name: median(values) for name, values in times.items()}


def _with_token(request: bytes, peer: Peer) -> bytes:
    return request[:-2] + f"Authorization: Bearer {peer.token}\r\n\r\n".encode() if peer.token else request


def _connect(peer: Peer) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", peer.port), timeout=10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return UNVERIFIED.wrap_socket(sock) if peer.scheme == "https" else sock


class PingPong(asyncio.Protocol):
    """Sends a frame, waits for it to come back, and again."""

    def __init__(self) -> None:
        self.count = 0
        self._missing = 0
        self._is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(HANDSHAKE)

    def data_received(self, data: bytes) -> None:
        if not self._is_open:
            self._is_open = True
        else:
            self._missing -= len(data)
            if self._missing > 0:
                return
            self.count += 1
        self._missing = len(FRAME)
        self.transport.write(FRAME)


def messages_per_second(peer: Peer, seconds: float) -> float:
    """How many 64-byte frames come back on all connections together."""

    async def play() -> float:
        loop = asyncio.get_running_loop()
        tls = UNVERIFIED if peer.scheme == "https" else None
        players = [
            (await loop.create_connection(PingPong, "127.0.0.1", peer.port, ssl=tls))[1]
            for _ in range(CONNECTIONS)
        ]
        begin, before = time.perf_counter(), sum(player.count for player in players)
        await asyncio.sleep(seconds)
        rate = (sum(player.count for player in players) - before) / (time.perf_counter() - begin)
        for player in players:
            player.transport.close()
        return rate

    return uvloop.run(play())


@contextmanager
def idle_websockets(peer: Peer, count: int) -> Iterator[None]:
    """Keep so many WebSockets open and silent during the block."""
    sockets = []
    try:
        for _ in range(count):
            sock = _connect(peer)
            sockets.append(sock)
            sock.sendall(HANDSHAKE)
            if not sock.recv(4096).startswith(b"HTTP/1.1 101"):
                raise SystemExit(f"{peer.name} does not upgrade")
        yield
    finally:
        for sock in sockets:
            sock.close()
