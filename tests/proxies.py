"""What a test puts between the store and Redis, or in Redis' place, to see and bend the traffic."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from remuda.store.url import parse_url

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(talk: Talk) -> AsyncIterator[str]:
    """A server on a unix socket that talks so with everyone who connects; its URL."""
    with tempfile.TemporaryDirectory(prefix="remuda-test-") as directory:
        path = Path(directory) / "proxy.sock"
        server = await asyncio.start_unix_server(talk, path)
        try:
            yield f"unix://{path}"
        finally:
            server.close()


class Proxy:
    """Logs in to Redis, passes everything on and keeps what it was sent, one entry for each read."""

    def __init__(self, redis_url: str) -> None:
        self._redis = parse_url(redis_url)
        self.received: list[bytes] = []

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        redis_reader, redis_writer = await asyncio.open_unix_connection(self._redis.path)
        redis_writer.write(f"AUTH {self._redis.password}\r\n".encode())
        assert await redis_reader.readline() == b"+OK\r\n"
        answers = asyncio.create_task(_pass_on(redis_reader, writer), name="answers of Redis")
        while chunk := await reader.read(1 << 20):
            self.received.append(chunk)
            redis_writer.write(chunk)
        redis_writer.close()
        await answers


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(1 << 20):
        writer.write(chunk)
    writer.close()
