"""How the gateway finds managers, and a session's node: once, and again when it must."""

import pytest

from grids import new_session
from remuda.accounts.model import EVERYTHING
from remuda.base.errors import SessionLost, UpstreamUnavailable
from remuda.base.ids import SessionId
from remuda.fleet.relay import Address
from remuda.gateway import lookup
from remuda.gateway.lookup import RedisDirectory
from remuda.grid.sessions import Sessions
from remuda.keyspace import grid
from remuda.store import Store


async def served(store: Store, port: int) -> SessionId:
    """A session whose node listens."""
    session = await new_session(store)
    await Sessions(store).open(session, upstream={"host": "127.0.0.1", "port": port}, actual={})
    return session


async def found(directory: RedisDirectory, session: SessionId) -> Address:
    place = directory.find_node(session, EVERYTHING)
    return place if isinstance(place, Address) else await place


async def test_a_session_is_looked_up_once_however_many_there_are(store: Store) -> None:
    directory = RedisDirectory(store)
    sessions = {await served(store, port): port for port in range(1, 301)}
    for session in sessions:
        await found(directory, session)

    for session, port in sessions.items():
        assert directory.find_node(session, EVERYTHING) == Address("127.0.0.1", port)


async def test_only_so_many_sessions_are_remembered_and_the_others_looked_up(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "MAX_SESSIONS", 2)
    directory = RedisDirectory(store)
    sessions = [await served(store, port) for port in (1, 2, 3)]

    for _ in range(2):
        assert [(await found(directory, session)).port for session in sessions] == [1, 2, 3]


async def only_manager(store: Store, directory: RedisDirectory) -> Address:
    """The address of a manager that is registered, and that the directory knows."""
    await store.sadd(grid.MANAGERS(), "m1")
    await store.hset(grid.MANAGER("m1"), {"host": "127.0.0.1", "port": 7})
    await store.set(grid.MANAGER_HEARTBEAT("m1"), "1")
    await directory.refresh()
    manager = directory.find_manager()
    assert isinstance(manager, Address)
    return manager


async def test_a_manager_that_broke_off_one_exchange_serves_the_next(store: Store) -> None:
    directory = RedisDirectory(store)
    manager = await only_manager(store, directory)

    directory.forget(manager, may_run=True)

    looking = directory.find_manager()
    assert not isinstance(looking, Address)
    assert await looking == manager
    assert directory.find_manager() == manager


async def test_a_manager_that_refused_a_connection_is_avoided(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "WAIT_FOR", 0.05)
    directory = RedisDirectory(store)
    manager = await only_manager(store, directory)

    directory.forget(manager, may_run=False)

    looking = directory.find_manager()
    assert not isinstance(looking, Address)
    with pytest.raises(UpstreamUnavailable, match="No manager is running"):
        await looking


@pytest.mark.parametrize("may_run", [True, False])
async def test_a_node_that_broke_off_has_lost_its_session(store: Store, may_run: bool) -> None:
    directory = RedisDirectory(store)
    session = await served(store, 9)
    node = await found(directory, session)

    directory.forget(node, may_run=may_run)

    with pytest.raises(SessionLost, match="does not answer"):
        await found(directory, session)
