"""Nodes, drivers and browsers that die: the session ends, the slot returns, nothing is left."""

from collections.abc import Awaitable, Callable
from typing import Any

import psutil
import pytest

from deployments import DEADLINE, Client, Deployment, assert_ended, node_of
from installed import needs_browser
from processes import children_of, family, name_of
from remuda.base.ids import SessionId
from remuda.keyspace import grid
from remuda.store import Store
from waiting import eventually

pytestmark = [
    pytest.mark.xdist_group("grid node deaths"),
    pytest.mark.usefixtures("calm_after"),
    needs_browser,
]

NODES_ENDS = ["DFAILURE", "TERM", "HALT"]


def driver_of(node: psutil.Process) -> psutil.Process:
    (driver,) = [each for each in children_of(node) if name_of(each) == "chromedriver"]
    return driver


def browser_of(node: psutil.Process) -> psutil.Process:
    (browser,) = driver_of(node).children()
    return browser


async def test_a_killed_node_takes_its_browser_with_it(
    store: Store, client: Client, deployment: Deployment
) -> None:
    session = await client.open()
    node = await node_of(store, session, deployment)
    was = family(node)

    node.kill()

    codes = await assert_ended(store, client, session, was)
    assert codes[-1] == "TERM"
    assert not list(deployment.temporary.glob(f"remuda-{node.pid}-*"))


async def test_a_session_that_had_a_browser_gets_no_other_though_redis_has_lost_it(
    store: Store, client: Client, deployment: Deployment
) -> None:
    session = await client.open()
    node = await node_of(store, session, deployment)
    was = family(node)
    # As after a fail-over that has lost everything since the node was scheduled.
    await store.hdel(grid.SESSION_STATUS(session), "aliveAt")
    await store.delete(grid.SESSION_UPSTREAM(session))
    await store.set(grid.SESSION_HEARTBEAT_MANAGER(session), "1")

    node.kill()

    codes = await assert_ended(store, client, session, was)
    assert "RESCHED" not in codes


@pytest.mark.parametrize("victim", [driver_of, browser_of])
async def test_a_driver_or_browser_that_dies_ends_its_session(
    store: Store, client: Client, deployment: Deployment, victim: Any
) -> None:
    session = await client.open()
    node = await node_of(store, session, deployment)
    was = family(node)

    victim(node).kill()

    codes = await assert_ended(store, client, session, was)
    assert codes[-3:] == NODES_ENDS


async def close_by_driver(client: Client, session: SessionId) -> None:
    command = {"cmd": "Browser.close", "params": {}}
    await client.call("POST", f"/session/{session}/goog/cdp/execute", command)


async def close_by_devtools(client: Client, session: SessionId) -> None:
    async with client.websocket(f"/session/{session}/se/cdp") as socket:
        await socket.send_json({"id": 1, "method": "Browser.close"})
        await socket.receive()


@pytest.mark.parametrize("close", [close_by_driver, close_by_devtools])
async def test_a_browser_that_is_told_to_close_has_not_failed(
    store: Store,
    client: Client,
    deployment: Deployment,
    close: Callable[[Client, SessionId], Awaitable[None]],
) -> None:
    session = await client.open()
    was = family(await node_of(store, session, deployment))

    await close(client, session)

    codes = await assert_ended(store, client, session, was)
    # By ChromeDriver at its pipe, the browser does not always exit with status 0.
    endings = [["CLOSED", "HALT"], *([NODES_ENDS[-2:]] if close is close_by_driver else [])]
    assert codes[-2:] in endings


async def test_a_warm_node_whose_driver_dies_is_replaced(
    store: Store, client: Client, deployment: Deployment
) -> None:
    (driver,) = await eventually(lambda: warm_drivers(deployment), DEADLINE)

    driver.kill()
    await eventually(lambda: driver not in warm_drivers(deployment) and warm_drivers(deployment), DEADLINE)

    session = await client.open()
    await client.close(session)


def warm_drivers(deployment: Deployment) -> list[psutil.Process]:
    return [each for each in deployment.processes() if name_of(each) == "chromedriver"]
