"""Browsers and drivers that stop in the middle of a command, and those that are only busy."""

from collections.abc import Iterator

import psutil
import pytest

from deployments import Client, Deployment, Reply, assert_ended, node_of, open_deployment
from installed import BROWSERS, LIGHTEST, needs_browser
from processes import children_of, family, name_of
from remuda.base.ids import SessionId
from remuda.grid.node.pulse import LAST_CHANCE
from remuda.store import Store

pytestmark = [
    pytest.mark.xdist_group("grid hangs"),
    pytest.mark.usefixtures("calm_after"),
    needs_browser,
]

HANG = 2
BROWSERS_THAT_HANG = [
    pytest.param(name, "browser", marks=pytest.mark.skipif(name not in BROWSERS, reason=f"no {name} here"))
    for name in ("chrome", "firefox")
]


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    """A deployment whose sessions end when their browser has not answered for some seconds."""
    with open_deployment() as deployment:
        deployment.run("gateway", "manager", "orchestrator", environ={"REMUDA_BROWSER_HANG": str(HANG)})
        yield deployment
        deployment.stop()
        assert deployment.processes() == []


def driver_of(node: psutil.Process, name: str) -> psutil.Process:
    driver = BROWSERS[name].driver.name[:15]  # The kernel keeps so many characters of a name.
    (found,) = [each for each in children_of(node) if name_of(each)[:15] == driver]
    return found


async def run(client: Client, session: SessionId, script: str) -> Reply:
    return await client.call("POST", f"/session/{session}/execute/sync", {"script": script, "args": []})


async def is_busy_for_long(client: Client, session: SessionId) -> bool:
    """Whether a page may be busy for longer than it takes to notice a hang."""
    busy = 1000 * (2 * HANG + LAST_CHANCE)
    return await run(
        client, session, f"const end = Date.now() + {busy}; while (Date.now() < end); return 'done'"
    ) == Reply(200, "done")


@pytest.mark.parametrize(("name", "who"), [*BROWSERS_THAT_HANG, (LIGHTEST, "driver")])
async def test_what_hangs_ends_its_session_though_a_command_is_under_way(
    store: Store, client: Client, deployment: Deployment, name: str, who: str
) -> None:
    session = await client.open(name)
    node = await node_of(store, session, deployment)
    was = family(node)
    driver = driver_of(node, name)
    if who == "browser":
        assert await is_busy_for_long(client, session)

    (driver if who == "driver" else driver.children()[0]).suspend()
    reply = await run(client, session, "return 1")

    assert reply.error == "404 invalid session id"
    assert f"The {who} has not answered for {HANG} s" in reply.value["message"]
    codes = await assert_ended(store, client, session, was)
    assert codes[-3:] == ["DTIMEOUT", "TERM", "HALT"]
