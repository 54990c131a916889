"""The live settings over HTTP."""

import msgspec
import pytest

from remuda.grid.timeouts import Timeouts, timeouts
from remuda.keyspace import grid
from remuda.store import Store
from web_states import visiting


async def test_settings_are_shown_and_changed(store: Store) -> None:
    await timeouts(store).write_defaults()
    async with visiting(store) as client:
        async with client.get("/api/settings") as response:
            assert await response.json() == msgspec.to_builtins(Timeouts())

        async with client.patch("/api/settings", json={"queue": 5, "nodeStartup": 2.5}) as response:
            changed = await response.json()

    assert (changed["queue"], changed["nodeStartup"], changed["scheduling"]) == (5, 2.5, 60)
    assert await timeouts(store).read() == Timeouts(queue=5, node_startup=2.5)
    assert await store.hget(grid.TIMEOUTS(), "queue") == "5"


@pytest.mark.parametrize(
    "body", [{}, {"queues": 5}, {"queue": -1}, {"queue": "soon"}, {"queue": None}, {"queue": 1e999}]
)
async def test_what_is_no_setting_changes_nothing(store: Store, body: dict[str, object]) -> None:
    async with visiting(store) as client, client.patch("/api/settings", json=body) as response:
        assert response.status == 400

    assert await timeouts(store).read() == Timeouts()
