"""How the gateway finds a session's node: once, and again when it must."""

import pytest

from grids import new_session
from remuda.accounts.model import EVERYTHING
from remuda.base.ids import SessionId
from remuda.fleet.relay import Address
from remuda.gateway import lookup
from remuda.gateway.lookup import RedisDirectory
from remuda.grid.sessions import Sessions
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
