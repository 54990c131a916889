"""The servers of ours that take part:
`python -m bench.servers gateway PORT PAGES ECHO | role PORT PAGES ECHO [OPTION=VALUE ...] | echo PORT`."""

import asyncio
import resource
import sys
import tempfile
from pathlib import Path
from typing import cast

import uvloop

from bench.peers import ECHO_SESSION, HTTP_SESSION, TOKEN
from remuda.accounts.model import digest_of
from remuda.base import clock
from remuda.base.config import load_config
from remuda.base.ids import SessionId
from remuda.cli.rooms import ROOMS, SECTIONS
from remuda.fleet.relay import Address
from remuda.fleet.room import Surroundings
from remuda.gateway.directory import Viewer
from remuda.gateway.door import Door
from remuda.gateway.role import Gateway
from remuda.keyspace import accounts, grid
from remuda.metering.room import is_metered, make_metering
from remuda.storage.model import StorageId
from remuda.store import Store
from remuda.store.embedded import embedded_redis

SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"


class StaticDirectory:
    """A directory in which nothing moves."""

    def __init__(self, pages: Address, echo: Address) -> None:
        self._pages = pages
        self._echo = echo

    def find_manager(self) -> Address:
        return self._pages

    def find_node(self, session: SessionId, viewer: Viewer) -> Address:
        return self._echo if session == ECHO_SESSION else self._pages

    def is_known(self, session: SessionId, viewer: Viewer) -> bool:
        return True

    def find_api(self) -> Address:
        return self._pages

    def find_storage(self, storage: StorageId) -> Address:
        return self._pages

    def forget(self, address: Address, *, may_run: bool) -> None: ...


class Secret:
    """As long as a herd's own."""

    line = b"X-Remuda-Secret: " + b"0" * 64 + b"\r\n"


class Echo(asyncio.Protocol):
    """Agrees to be a WebSocket, then sends every byte back."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._is_open = False

    def data_received(self, data: bytes) -> None:
        if self._is_open:
            self._transport.write(data)
            return
        self._is_open = True
        self._transport.write(SWITCHING)


async def serve_role(port: str, upstreams: list[str], options: dict[str, str]) -> None:
    """Serve as a whole gateway with a Redis of its own, in which there are two sessions and a token."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        config = load_config(SECTIONS, {"port": int(port), "data": directory, **options}, environ={})
        async with embedded_redis(Path(directory)) as url, Store(url) as store:
            digest, now = digest_of(TOKEN), clock.rfc3339()
            token = {"name": "bench", "account": "bench", "scopes": "use", "createdAt": now}
            await store.hset(accounts.TOKEN(digest), token)
            await store.hset(accounts.TOKENS("bench"), {"bench": digest})
            for session, upstream in zip((HTTP_SESSION, ECHO_SESSION), upstreams, strict=True):
                at = {"host": "127.0.0.1", "port": upstream, "driverSessionID": "bench"}
                await store.hset(grid.SESSION_UPSTREAM(session), at)
                await store.hset(grid.SESSION_STATUS(session), {"queuedAt": now, "aliveAt": now})
                await store.hset(grid.SESSION_ORIGIN(session), {"account": "bench"})
            metering = make_metering(Surroundings(store, config, ROOMS)) if is_metered(config) else None
            gateway = Gateway(store, config, metering=metering)
            await gateway.start()
            await gateway.serve()


async def serve(arguments: list[str]) -> None:
    """Serve until killed."""
    name, port, *ports = arguments
    if name == "role":
        await serve_role(port, ports[:2], dict(each.split("=", 1) for each in ports[2:]))
    loop = asyncio.get_running_loop()
    if name == "gateway":
        pages, echo = (Address("127.0.0.1", int(each)) for each in ports)
        factory = Door(StaticDirectory(pages, echo), secret=Secret()).relay.protocol
    else:
        factory = Echo
    server = await loop.create_server(factory, "127.0.0.1", int(port), backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    uvloop.run(serve(sys.argv[1:]))
