"""A session that has been purged stays so, whoever still writes about it: no id leaves anything behind."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from grids import new_session
from remuda.base import clock
from remuda.base.ids import SessionId, new_id
from remuda.grid.model import State
from remuda.grid.node.labelling import Labelling
from remuda.grid.sessions import Sessions
from remuda.grid.slots import Slots
from remuda.keyspace import grid, metrics
from remuda.keyspace.log_codes import LOG_CODES
from remuda.storage.model import StorageId
from remuda.store import Store
from storages import session_writer
from sweeping import ended, keys_with, retain, sweep_all

Write = Callable[[Store, SessionId], Awaitable[object]]


async def write_artifacts(store: Store, session: SessionId, directory: Path) -> None:
    await session_writer(store, StorageId(new_id()), directory).open(session)


def logs(code: str) -> Write:
    return lambda store, session: Sessions(store).log(session, code)


WRITES: dict[str, Write] = {
    "node boots": lambda store, session: Sessions(store).boot(session, is_warm=False),
    "node listens": lambda store, session: Sessions(store).open(
        session, upstream={"host": "127.0.0.1", "port": 1, "driverSessionID": "x"}, actual={}
    ),
    "node was used": lambda store, session: Sessions(store).note_seen(session, clock.now()),
    "node is labelled": lambda store, session: Labelling(Sessions(store), session).add({"name": "x"}),
    "slot is claimed": lambda store, session: Slots(store).claim(session, []),
    "slot is released": lambda store, session: Slots(store).release(session),
    "state changes": lambda store, session: Sessions(store).move(session, State.TERMINATED, code="TERM"),
    **{f"logs {entry.code}": logs(entry.code) for entry in LOG_CODES},
}


@pytest.fixture(autouse=True)
async def _slots(any_store: Store) -> None:
    await retain(any_store, slots=20)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
async def test_a_purged_session_is_not_brought_back(any_store: Store, write: Write) -> None:
    session = await ended(any_store)
    await sweep_all(any_store, retention=0)
    counted = await any_store.hgetall(metrics.METRICS_SESSIONS_LOG("info"))

    await write(any_store, session)

    assert await keys_with(any_store, session) == []
    assert await any_store.hgetall(metrics.METRICS_SESSIONS_LOG("info")) == counted


async def test_a_purged_session_gets_no_artifacts(any_store: Store, tmp_path: Path) -> None:
    session = await ended(any_store)
    await sweep_all(any_store, retention=0)

    with pytest.raises(Exception, match="There is no session"):
        await write_artifacts(any_store, session, tmp_path)

    assert await keys_with(any_store, session) == []
    assert list(tmp_path.iterdir()) == []


async def test_writers_who_race_with_a_purge_leave_nothing(any_store: Store, any_url: str) -> None:
    sessions = [await ended(any_store) for _ in range(20)]

    async with Store(any_url) as other:

        async def keep_writing(session: SessionId) -> None:
            for _ in range(20):
                await Sessions(other).note_seen(session, clock.now())
                await Sessions(other).log(session, "HALT")

        await asyncio.gather(sweep_all(any_store, retention=0), *map(keep_writing, sessions))

    for session in sessions:
        assert await keys_with(any_store, session) == []


async def test_a_session_that_is_there_is_written_about(any_store: Store) -> None:
    session = await new_session(any_store)

    await Sessions(any_store).open(
        session, upstream={"host": "h", "port": 1, "driverSessionID": "x"}, actual={"browserName": "b"}
    )
    await Sessions(any_store).note_seen(session, 0.0)

    upstream = await any_store.hgetall(grid.SESSION_UPSTREAM(session))
    assert upstream == {"host": "h", "port": "1", "driverSessionID": "x"}
    assert await any_store.hget(grid.SESSION_CAPABILITIES(session), "actual") == '{"browserName":"b"}'
    assert await any_store.hget(grid.SESSION_DOWNSTREAM(session), "lastSeen") == "1970-01-01T00:00:00.000Z"
