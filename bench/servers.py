"""The servers of ours that take part: `python -m bench.servers gateway PORT PAGES ECHO | echo PORT`."""

import asyncio
import resource
import sys
from typing import cast

import uvloop

from bench.peers import ECHO_SESSION
from remuda.base.ids import SessionId
from remuda.fleet.relay import Address
from remuda.gateway.door import Door
from remuda.storage.model import StorageId

SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"


class StaticDirectory:
    """A directory in which nothing moves."""

    def __init__(self, pages: Address, echo: Address) -> None:
        self._pages = pages
        self._echo = echo

    def find_manager(self) -> Address:
        return self._pages

    def find_node(self, session: SessionId) -> Address:
        return self._echo if session == ECHO_SESSION else self._pages

    def find_api(self) -> Address:
        return self._pages

    def find_storage(self, storage: StorageId) -> Address:
        return self._pages

    def forget(self, address: Address) -> None: ...


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


async def serve(arguments: list[str]) -> None:
    """Serve until killed."""
    name, port, *ports = arguments
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
