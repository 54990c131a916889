"""Opens a connection for a parsed URL: finds the master through Sentinel, dials, says HELLO, selects, and
waits until Redis has loaded its data."""

import asyncio
from collections.abc import Callable
from typing import Any

from remuda.base.errors import StoreUnavailable
from remuda.store.url import StoreUrl
from remuda.store.wire import CommandRefused, Wire, pack

LOOK_EVERY = 0.05


async def dial(url: StoreUrl, make_wire: Callable[[], Wire], *, name: str) -> Wire:
    """A connection that is ready for commands; StoreUnavailable when there is none to be had."""
    try:
        wire = await _open(url, make_wire)
        await _greet(wire, url, name=name)
    except (OSError, UnicodeError, CommandRefused, StoreUnavailable) as error:
        raise StoreUnavailable(f"Redis at {url} cannot be used: {error}") from error
    return wire


async def _open(url: StoreUrl, make_wire: Callable[[], Wire]) -> Wire:
    loop = asyncio.get_running_loop()
    if url.path:
        return (await loop.create_unix_connection(make_wire, url.path))[1]
    host, port = await _find_master(url) if url.service else url.hosts[0]
    return (await loop.create_connection(make_wire, host, port, ssl=url.tls))[1]


async def _find_master(url: StoreUrl) -> tuple[str, int]:
    # Only here, since redis-py is large and most fleets have no Sentinel.
    import redis.asyncio.retry
    import redis.asyncio.sentinel
    import redis.backoff
    import redis.exceptions

    # No retries: rather than knock at a dead Sentinel again, ask the next.
    retry = redis.asyncio.retry.Retry(redis.backoff.NoBackoff(), 0)
    options: Any = {"socket_timeout": 1.0, "socket_connect_timeout": 1.0, "retry": retry}
    sentinel: Any = redis.asyncio.sentinel.Sentinel(url.hosts, sentinel_kwargs=options)  # type: ignore[no-untyped-call]
    try:
        host, port = await sentinel.discover_master(url.service)
        return host, port
    except redis.exceptions.RedisError as error:
        raise OSError(f"no Sentinel names the master of {url.service!r}: {error}") from error
    finally:
        for client in sentinel.sentinels:
            await client.aclose()


async def _greet(wire: Wire, url: StoreUrl, *, name: str) -> None:
    hello: list[Any] = ["HELLO", 3]
    if url.password:
        hello += ["AUTH", url.username or "default", url.password]
    if name:
        hello += ["SETNAME", name]
    commands = [hello, ["SELECT", url.db]] if url.db else [hello]
    # All at once, to come and go only once.
    replies = [_ask(wire, command) for command in commands]
    ping = _ask(wire, ["PING"])
    try:
        greeting, *_, is_loading = await asyncio.gather(*replies, _is_loading(ping))
        if greeting.get("mode") == "cluster":  # A script's keys would lie on several machines.
            raise StoreUnavailable("it is a Redis Cluster; take one Redis, or one behind Sentinel")
        while is_loading:
            await asyncio.sleep(LOOK_EVERY)
            is_loading = await _is_loading(_ask(wire, ["PING"]))
    except BaseException:
        wire.abort()
        raise


async def _is_loading(ping: asyncio.Future[Any]) -> bool:
    # It says HELLO meanwhile, but refuses nearly everything else.
    try:
        await ping
    except StoreUnavailable as error:
        # With whatever else it refuses a PING, such as a full disk, there is still much that it does.
        return "LOADING" in error.message
    return False


def _ask(wire: Wire, command: list[Any]) -> asyncio.Future[Any]:
    reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    wire.send(pack(*command), (reply,))
    return reply
