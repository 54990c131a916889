"""Taking an orchestrator out of service through the API, or as one does with a node of Selenium Grid."""

import pytest

from remuda.base.config import Config
from remuda.cli.rooms import ROOMS
from remuda.fleet.room import Surroundings
from remuda.grid.model import State
from remuda.grid.registry import live_offers
from remuda.ops.exporter import expose
from remuda.store import Store
from web_states import SessionWriter, get, orchestrator, running, visiting

GRIDS_ANSWER = {"value": True, "message": "Node status was successfully set to draining."}


async def test_an_orchestrator_is_taken_out_of_service_and_put_back(store: Store) -> None:
    async with running(orchestrator(store)), visiting(store) as client:
        await SessionWriter(store).serve()
        path = "/api/orchestrators/ranch/drain"

        out = await get(client, path, method="POST")
        assert out == (200, {"id": "ranch", "draining": True, "sessions": 1})
        assert await live_offers(store) == {}

        back = await get(client, path, method="DELETE")
        assert back == (200, {"id": "ranch", "draining": False, "sessions": 1})
        assert list(await live_offers(store)) == ["ranch"]


@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_what_is_no_orchestrator_is_not_there(store: Store, method: str) -> None:
    async with visiting(store) as client:
        status, answer = await get(client, "/api/orchestrators/*/drain", method=method)

        assert status == 404
        assert answer["error"]["message"] == "There is no orchestrator '*'."


@pytest.mark.parametrize("path", ["/se/grid/distributor/node/ranch/drain", "/se/grid/node/drain"])
async def test_a_node_drains_as_in_selenium_grid(store: Store, path: str) -> None:
    async with running(orchestrator(store)), visiting(store) as client:
        assert await get(client, path, method="POST") == (200, GRIDS_ANSWER)

        _, answer = await get(client, "/status")
        assert answer["value"]["ready"] is False
        assert [node["availability"] for node in answer["value"]["nodes"]] == ["DRAINING"]
        _, answer = await get(client, "/graphql?query={nodesInfo{nodes{status}}}")
        assert answer["data"]["nodesInfo"]["nodes"] == [{"status": "DRAINING"}]


async def test_of_several_nodes_one_has_to_be_named(store: Store) -> None:
    async with running(orchestrator(store), orchestrator(store, "other")), visiting(store) as client:
        status, answer = await get(client, "/se/grid/node/drain", method="POST")

        assert status == 400
        assert answer["value"]["error"] == "invalid argument"
        assert "there are other, ranch" in answer["value"]["message"]
        assert len(await live_offers(store)) == 2


async def test_slots_of_one_that_drains_are_free_for_nobody(store: Store) -> None:
    async with running(orchestrator(store, slots=3)), visiting(store) as client:
        await get(client, "/se/grid/node/drain", method="POST")

        text = await expose(Surroundings(store, Config(), ROOMS))

        assert "webgrid_slots_available 0\n" in text
        assert 'remuda_orchestrators{state="draining"} 1\n' in text
        assert 'remuda_orchestrators{state="alive"} 0\n' in text


async def test_a_session_is_asked_for_and_ended_where_selenium_grid_does(store: Store) -> None:
    async with running(orchestrator(store)), visiting(store) as client:
        session = await SessionWriter(store).serve()
        owner = f"/se/grid/node/owner/{session}"
        assert await get(client, owner) == (200, {"value": True})

        ended = await get(client, f"/se/grid/node/session/{session}", method="DELETE")

        assert ended == (200, {"value": None})
        assert await SessionWriter(store).sessions.state(session) is State.TERMINATED
        assert await get(client, owner) == (200, {"value": False})
        assert await get(client, "/se/grid/node/owner/nobody") == (200, {"value": False})
