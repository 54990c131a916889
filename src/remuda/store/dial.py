"""Opens a connection for a parsed URL: finds the master through Sentinel, dials, says HELLO, selects, and
waits until Redis has loaded its data."""

import asyncio
from collections.abc import Callable
from typing import Any

from remuda.base.errors import RemudaError, StoreUnavailable
from remuda.store.sentinel import ask, explain, find_master
from remuda.store.url import StoreUrl
from remuda.store.wire import CommandRefused, Wire, settle

LOOK_EVERY = 0.05


async def dial(url: StoreUrl, make_wire: Callable[[], Wire], *, name: str) -> Wire:
    """A connection that is ready for commands; StoreUnavailable when there is none to be had."""
    try:
        wire = await _open(url, make_wire)
        await _greet(wire, url, name=name)
    except (OSError, UnicodeError, CommandRefused, StoreUnavailable) as error:
        raise StoreUnavailable(f"Redis at {url} cannot be used: {_explain_redis(error)}") from error
    return wire


def _explain_redis(error: OSError | UnicodeError | RemudaError) -> str:
    text = str(error)
    if text.startswith("NOAUTH"):
        return (
            "it requires a password; add it to the URL, as in redis://:PASSWORD@host or ?password_file=FILE "
            "(NOAUTH)"
        )
    if text.startswith("WRONGPASS"):
        return "it refused the user or the password of the URL (WRONGPASS)"
    return explain(error)


async def _open(url: StoreUrl, make_wire: Callable[[], Wire]) -> Wire:
    loop = asyncio.get_running_loop()
    if url.path:
        return (await loop.create_unix_connection(make_wire, url.path))[1]
    host, port = await find_master(url) if url.service else url.hosts[0]
    wire: Wire = (await loop.create_connection(make_wire, host, port, ssl=url.tls))[1]
    wire.server = (host, port)
    return wire


async def _greet(wire: Wire, url: StoreUrl, *, name: str) -> None:
    hello: list[Any] = ["HELLO", 3]
    if url.password:
        hello += ["AUTH", url.username or "default", url.password]
    if name:
        hello += ["SETNAME", name]
    commands = [hello, ["SELECT", url.db]] if url.db else [hello]
    # All at once, to come and go only once.
    replies = [ask(wire, *command) for command in commands]
    ping = ask(wire, "PING")
    try:
        await settle([*replies, ping])
        greeting, *_ = [reply.result() for reply in replies]
        is_loading = await _is_loading(ping)
        if url.service and greeting.get("role") != "master":  # Sentinels need a moment to agree on a new one.
            raise StoreUnavailable(
                f"Sentinel reports it as the master of {url.service!r}, but it is a replica"
            )
        if greeting.get("mode") == "cluster":  # A script's keys would lie on several machines.
            raise StoreUnavailable("it is a Redis Cluster; use a single Redis, or one behind Sentinel")
        while is_loading:
            await asyncio.sleep(LOOK_EVERY)
            is_loading = await _is_loading(ask(wire, "PING"))
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
