"""Orchestrators that are killed, lose their fork server or leave: their sessions go on, or end in order."""

import asyncio
import signal

import psutil
import pytest

from deployments import DEADLINE, SLOTS, Client, Deployment, Reply, assert_ended, node_of
from grids import all_sessions, check_slots, codes_of
from installed import LIGHTEST, needs_browser
from processes import family, is_alive, parent_of
from remuda.fleet.role import running_roles
from remuda.grid.view import orchestrators
from remuda.keyspace import grid
from remuda.store import Store
from waiting import eventually

pytestmark = [
    pytest.mark.xdist_group("grid orchestrator deaths"),
    pytest.mark.usefixtures("calm_after"),
    needs_browser,
]


def fork_server_of(deployment: Deployment) -> psutil.Process:
    """The process that bears the nodes: a child of an orchestrator's."""
    roles = [process.pid for process in deployment.running]
    (server,) = [each for each in deployment.processes() if is_alive(each) and parent_of(each) in roles]
    return server


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
async def test_without_its_fork_server_an_orchestrator_starts_another(
    store: Store, client: Client, deployment: Deployment, signum: signal.Signals
) -> None:
    server = fork_server_of(deployment)
    kept = await client.open()

    server.send_signal(signum)
    sessions = [await client.open()]

    # The first may have had the warm node.
    assert await client.close(sessions[0]) == Reply(200, None)
    sessions.append(await client.open())
    assert fork_server_of(deployment) != server
    assert await client.title(kept) == Reply(200, "page")
    for session in (kept, sessions[1]):
        assert await client.close(session) == Reply(200, None)


async def test_an_orchestrator_that_is_killed_comes_back_to_its_slots_and_nodes(
    store: Store, client: Client, deployment: Deployment
) -> None:
    kept, lost = await client.open(), await client.open()
    node = await node_of(store, lost, deployment)
    was = family(node)
    old = deployment.running.pop()

    old.kill()
    old.wait()
    node.kill()
    deployment.run("orchestrator")

    codes = await assert_ended(store, client, lost, was)
    assert codes[-1] == "TERM"
    assert await client.title(kept) == Reply(200, "page")
    session = await client.open()
    assert await store.scard(grid.ORCHESTRATOR_SLOTS(deployment.orchestrator)) == SLOTS
    await check_slots(store, [deployment.orchestrator])
    for each in (session, kept):
        assert await client.close(each) == Reply(200, None)


async def kill_orchestrator(store: Store, deployment: Deployment) -> None:
    """A new life for the orchestrator, after a sudden end."""
    old = deployment.running.pop()
    old.kill()
    old.wait()
    new = deployment.run("orchestrator")
    await eventually(lambda: runs(store, new.pid), DEADLINE)


async def runs(store: Store, pid: int) -> bool:
    return str(pid) in {role["pid"] for role in await running_roles(store)}


async def test_an_adopted_node_that_dies_is_noticed_at_once(
    store: Store, client: Client, deployment: Deployment
) -> None:
    session = await client.open()
    node = await node_of(store, session, deployment)
    was = family(node)
    await kill_orchestrator(store, deployment)
    assert await client.title(session) == Reply(200, "page")

    node.kill()

    # Long before its beat runs out, and before anybody looks for lost slots.
    codes = await assert_ended(store, client, session, was)
    assert codes[-1] == "TERM"


async def test_an_adopted_node_ends_with_its_new_orchestrator(
    store: Store, client: Client, deployment: Deployment
) -> None:
    session = await client.open()
    was = family(await node_of(store, session, deployment))
    await kill_orchestrator(store, deployment)

    leaving = deployment.running.pop()
    leaving.terminate()
    await eventually(lambda: count_draining(store))
    leaving.terminate()  # It waits for nobody any more.
    await asyncio.to_thread(leaving.wait, DEADLINE)
    deployment.run("orchestrator")

    await assert_ended(store, client, session, was)


@pytest.mark.parametrize("step", ["SCHED", "BOOT"])
async def test_a_session_comes_though_its_orchestrator_is_killed_while_it_starts(
    store: Store, client: Client, deployment: Deployment, step: str
) -> None:
    before = set(await all_sessions(store))
    asking = asyncio.create_task(client.ask(browserName=LIGHTEST))

    async def is_under_way() -> bool:
        new = set(await all_sessions(store)) - before
        return any([step in await codes_of(store, session) for session in new])

    await eventually(is_under_way)
    await kill_orchestrator(store, deployment)

    reply = await asking
    assert reply.status == 200
    assert await client.close(reply.value["sessionId"]) == Reply(200, None)


async def test_two_orchestrators_share_the_work_and_one_may_leave(
    store: Store, client: Client, deployment: Deployment
) -> None:
    other = deployment.run("orchestrator", data="other", slots=SLOTS)
    await eventually(lambda: has_orchestrators(store, 2), DEADLINE)

    sessions = [await client.open(), await client.open()]
    owners = [await store.lrange(grid.SESSION_ORCHESTRATOR(session)) for session in sessions]
    assert owners[0] != owners[1]
    other.terminate()
    await eventually(lambda: count_draining(store))

    # Its session goes on to its end, and then it leaves by itself.
    for session in sessions:
        assert (await client.call("GET", f"/session/{session}/title")).status == 200
        assert await client.close(session) == Reply(200, None)
    await asyncio.to_thread(other.wait, DEADLINE)
    deployment.running.remove(other)
    assert await has_orchestrators(store, 1)


async def count_draining(store: Store) -> int:
    return len([each for each in await orchestrators(store) if each.draining])


async def has_orchestrators(store: Store, count: int) -> bool:
    return await store.scard(grid.ORCHESTRATORS()) == count
