"""Which managers are there and which are gone, as Redis knows it by its connections."""

import pytest

from remuda.base.errors import StoreUnavailable
from remuda.base.ids import ManagerId
from remuda.grid.abandoned import LOOKS, Absences, present
from remuda.keyspace.grid import PRESENCE
from remuda.store import Store
from servers import Server
from waiting import eventually

ONE, TWO = ManagerId("one"), ManagerId("two")


async def look(absences: Absences, times: int = LOOKS) -> list[ManagerId]:
    found: list[ManagerId] = []
    for _ in range(times):
        found = await absences.find([ONE, TWO])
    return found


async def test_a_process_is_gone_with_its_connection(any_store: Store, any_url: str) -> None:
    absences = Absences(any_store)
    async with Store(any_url) as killed, Store(any_url) as other:
        with present(killed, ONE), present(other, TWO):
            await other.send("PING")
            await killed.send("PING")
            assert await look(absences) == []

            await killed.__aexit__(None, None, None)  # As by kill -9: it says nothing.

            await eventually(lambda: is_absent(any_store, ONE))
            assert await look(absences, LOOKS - 1) == []
            assert await look(absences, 1) == [ONE]


async def is_absent(store: Store, manager: ManagerId) -> bool:
    return await store.count_listeners([PRESENCE(f"manager:{manager}")]) == [0]


async def test_a_process_that_comes_back_between_two_looks_is_not_gone(store: Store, redis_url: str) -> None:
    absences = Absences(store)
    async with Store(redis_url) as busy:
        assert await look(absences, LOOKS - 1) == []

        with present(busy, ONE), present(busy, TWO):
            await busy.send("PING")
            assert await look(absences, 1) == []
            # Its connection breaks, and it makes another.
            await store.send("CLIENT", "KILL", "ID", await busy.send("CLIENT", "ID"))
            await eventually(lambda: busy.connection_number == 2 and busy.is_connected)
            await busy.send("PING")

            assert await look(absences) == []


async def test_nobody_is_gone_because_redis_was(server: Server) -> None:
    async with Store(server.url, timeout=0.5) as store:
        absences = Absences(store)
        assert await look(absences, 1) == []
        server.kill()
        with pytest.raises(StoreUnavailable):
            await absences.find([ONE])
        server.start()
        await eventually(lambda: store.is_connected)

        # Whoever lives may need a while to come back, so that nobody else is there means nothing yet.
        assert await look(absences, 2 * LOOKS) == []


async def test_a_look_right_after_a_new_connection_says_nothing(store: Store) -> None:
    absences = Absences(store)
    assert await look(absences, LOOKS - 1) == []

    await store.send("CLIENT", "KILL", "ID", await store.send("CLIENT", "ID"), "SKIPME", "no")
    await eventually(lambda: store.connection_number == 2 and store.is_connected)

    assert await look(absences, 2 * LOOKS) == []
