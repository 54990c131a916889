"""What a live session costs the gateway: `python -m bench.sessions`.

The real role with a real Redis; each session has a client that keeps its connection, as Selenium's does, and
a node that listens on a port of its own. Only the nodes' answers are canned.
"""

import argparse
import asyncio
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import cast

import uvloop

from bench.peers import Peer, free_port, rss, running
from bench.report import Target, report
from remuda.base.ids import SessionId, new_id
from remuda.fleet.origin import UNKNOWN
from remuda.grid.model import State
from remuda.grid.omission import encode_request
from remuda.grid.sessions import Sessions
from remuda.keyspace import grid
from remuda.store import Store
from remuda.store.embedded import embedded_redis

COMMANDS = 3
ANSWER = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n{"value":null}'
NODES = "nodes"


def main() -> None:
    """Measure, print and keep."""
    if sys.argv[1:2] == [NODES]:
        uvloop.run(serve_nodes(int(sys.argv[2])))
        return
    options = parse()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    found = [uvloop.run(measure(options.sessions)) for _ in range(options.rounds)]
    targets = [Target(f"one of {options.sessions:,} live sessions", max(found), 10.0, "KB", is_ceiling=True)]
    report("sessions", {"a live session, KB": {"gateway": found}}, targets)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


async def measure(sessions: int) -> float:
    """Kilobytes that each session adds to the gateway's process."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        url = await stack.enter_async_context(embedded_redis(directory))
        store = await stack.enter_async_context(Store(url))
        ports = await start_nodes(stack, sessions)
        ids = [await come_alive(store, port) for port in ports]
        gateway = stack.enter_context(start_gateway(url, directory))
        # Whatever a first request makes it load is no session's fault.
        stack.enter_context(client(gateway, ids.pop()))
        before = rss(gateway)
        for session in ids:
            stack.enter_context(client(gateway, session))
        return (rss(gateway) - before) / len(ids) / 1000


async def start_nodes(stack: AsyncExitStack, count: int) -> list[int]:
    """The ports of so many nodes, which all live in one other process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.sessions", NODES, str(count), stdout=subprocess.PIPE
    )
    stack.push_async_callback(process.wait)
    stack.callback(process.terminate)
    assert process.stdout is not None
    return [int(port) for port in (await process.stdout.readline()).split()]


async def serve_nodes(count: int) -> None:
    """Answers every request on so many ports until it is killed."""
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(CannedNode, "127.0.0.1", 0) for _ in range(count)]
    print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
    await asyncio.gather(*(server.serve_forever() for server in servers))


class CannedNode(asyncio.Protocol):
    """Gives the same answer to everything."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(ANSWER)


async def come_alive(store: Store, port: int) -> SessionId:
    session = SessionId(new_id())
    await Sessions(store).create(session, requested=encode_request([{}]), origin=UNKNOWN)
    await Sessions(store).move(session, State.PENDING, code="SCHED")
    await store.hset(grid.SESSION_UPSTREAM(session), {"host": "127.0.0.1", "port": port})
    await Sessions(store).move(session, State.ALIVE, code="NALIVE")
    return session


@contextmanager
def start_gateway(redis: str, directory: Path) -> Iterator[Peer]:
    """The gateway in a process of its own."""
    port = free_port()
    options = ["--redis", redis, "--data", str(directory), "--port", str(port)]
    with running([sys.executable, "-m", "remuda.cli.main", "run", "gateway", *options], port) as pid:
        yield Peer("gateway", port, pid)


def client(gateway: Peer, session: SessionId) -> socket.socket:
    """A client that has sent a few commands and keeps its connection."""
    connection = socket.create_connection(("127.0.0.1", gateway.port), timeout=10)
    for _ in range(COMMANDS):
        connection.sendall(f"GET /session/{session}/url HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        if not connection.recv(65536).startswith(b"HTTP/1.1 200"):
            raise SystemExit("a command went wrong")
    return connection


if __name__ == "__main__":
    main()
