"""What the DevTools door does before there is a browser."""

import asyncio

import aiohttp

from managers import Client, has_logged, only_session, open_orchestrator
from remuda.base.ids import OrchestratorId
from remuda.fleet.line import who_waits
from remuda.grid.model import State
from remuda.store import Store
from scripted_workers import DEADLINE, front_door
from servers import free_port
from waiting import eventually
from web_states import SessionWriter


async def test_a_page_in_a_browser_that_is_not_named_waits_for_a_free_slot(
    store: Store, client: Client
) -> None:
    await open_orchestrator(store, 0)
    async with front_door(store) as door, aiohttp.ClientSession() as web:

        async def open_page() -> int:
            async with web.put(f"http://127.0.0.1:{door.port}/json/new?about:blank") as response:
                return response.status

        opening = asyncio.create_task(open_page())

        (waiting,) = await eventually(lambda: who_waits(store, "grid:"), DEADLINE)
        assert waiting.ticket.endswith(await only_session(store))
        assert not opening.done()

        # Its place in line ends with the request.
        opening.cancel()

        async def is_line_empty() -> bool:
            return not await who_waits(store, "grid:")

        await eventually(is_line_empty, DEADLINE)
        await eventually(lambda: has_logged(store, "CLEFT"), DEADLINE)


async def test_the_protocol_is_asked_of_another_browser_when_the_first_has_just_ended(
    store: Store, client: Client
) -> None:
    await open_orchestrator(store, 0)
    writer = SessionWriter(store)
    gone = await writer.queue()
    capabilities = {"browserName": "chrome", "goog:chromeOptions": {}}
    await writer.sessions.move(gone, State.PENDING, code="SCHED", orchestrator=OrchestratorId("o"))
    upstream: dict[str, str | int] = {"host": "127.0.0.1", "port": free_port(), "driverSessionID": "d"}
    await writer.sessions.open(gone, upstream=upstream, actual=capabilities)
    await writer.sessions.move(gone, State.ALIVE, code="NALIVE")
    async with front_door(store) as door, aiohttp.ClientSession() as web:

        async def read_protocol() -> None:
            async with web.get(f"http://127.0.0.1:{door.port}/json/protocol") as response:
                await response.read()

        reading = asyncio.create_task(read_protocol())

        # It waits for a browser of its own, instead of an error.
        await eventually(lambda: who_waits(store, "grid:"), DEADLINE)
        assert not reading.done()
        reading.cancel()
        await eventually(lambda: has_logged(store, "CLEFT"), DEADLINE)
