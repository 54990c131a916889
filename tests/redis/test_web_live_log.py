"""A session's log as it grows: told entry by entry, taken up again where it broke off, and ended."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec

from grids import new_session
from remuda.base.ids import new_id
from remuda.grid.model import State
from remuda.grid.sessions import Sessions
from remuda.keyspace import grid
from remuda.store import Store
from web_states import visiting

DEADLINE = 20.0


async def entries(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, str, Any]]:
    """Number, name and value of each event."""
    number = name = ""
    async for line in response.content:
        field, _, value = line.decode().rstrip("\n").partition(": ")
        if field == "id":
            number = value
        elif field == "event":
            name = value
        elif field == "data" and name != "beat":
            yield number, name, msgspec.json.decode(value)


async def next_code(stream: AsyncIterator[tuple[str, str, Any]]) -> tuple[str, str]:
    """Number and code of the next entry, or what else came."""
    async with asyncio.timeout(DEADLINE):
        number, name, value = await anext(stream)
    return number, value["code"] if name == "entry" else name


async def test_a_log_is_told_as_it_grows_and_ends_with_its_session(store: Store) -> None:
    sessions, session = Sessions(store), await new_session(store)
    await store.set(grid.SESSION_SLOT(session), "o1/1")
    await sessions.log(session, "QUEUED")
    async with visiting(store) as client, client.get(f"/api/sessions/{session}/log/live") as response:
        stream = entries(response)
        assert (await next_code(stream))[1] == "QUEUED"

        await sessions.log(session, "BOOT")
        assert (await next_code(stream))[1] == "BOOT"
        await sessions.move(session, State.TERMINATED, code="CLEFT")
        assert (await next_code(stream))[1] == "CLEFT"
        # The node still has its slot, and something to say.
        await sessions.log(session, "HALT")
        assert (await next_code(stream))[1] == "HALT"
        await store.delete(grid.SESSION_SLOT(session))

        assert (await next_code(stream))[1] == "end"
        assert (await response.content.read()).strip() == b""


async def test_who_comes_back_hears_only_what_is_new_and_at_last_that_nothing_is(store: Store) -> None:
    sessions, session = Sessions(store), await new_session(store)
    path = f"/api/sessions/{session}/log/live"
    await sessions.log(session, "QUEUED")
    async with visiting(store) as client:
        async with client.get(path) as response:
            first, _ = await next_code(entries(response))
        await sessions.move(session, State.TERMINATED, code="CLEFT")

        async with client.get(path, headers={"Last-Event-ID": first}) as response:
            last, code = await next_code(entries(response))
        assert code == "CLEFT"

        async with client.get(path, params={"after": last}) as response:
            assert response.status == 204


async def test_a_session_that_never_was_has_no_log_to_follow(store: Store) -> None:
    async with visiting(store) as client:
        for name in (new_id(), "nonsense"):
            async with client.get(f"/api/sessions/{name}/log/live") as response:
                assert response.status == 404
