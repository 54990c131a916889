"""Orchestrators that are killed, lose their nursery or leave: their sessions go on, or end in good order."""

import asyncio
import signal

import psutil
import pytest

from grids import all_sessions, check_slots, codes_of
from installed import needs_browser
from processes import family
from ranches import DEADLINE, SLOTS, Client, Ranch, Reply, assert_ended, node_of
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


def nursery_of(ranch: Ranch) -> psutil.Process:
    """The process that bears the nodes: a child of an orchestrator's."""
    roles = [process.pid for process in ranch.running]
    (nursery,) = [each for each in ranch.processes() if each.ppid() in roles]
    return nursery


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
async def test_without_its_nursery_an_orchestrator_starts_another(
    store: Store, client: Client, ranch: Ranch, signum: signal.Signals
) -> None:
    nursery = nursery_of(ranch)
    kept = await client.open()

    nursery.send_signal(signum)
    sessions = [await client.open()]

    # The first may have had the warm node.
    assert await client.close(sessions[0]) == Reply(200, None)
    sessions.append(await client.open())
    assert nursery_of(ranch) != nursery
    assert await client.title(kept) == Reply(200, "corral")
    for session in (kept, sessions[1]):
        assert await client.close(session) == Reply(200, None)


async def test_an_orchestrator_that_is_killed_comes_back_to_its_slots_and_nodes(
    store: Store, client: Client, ranch: Ranch
) -> None:
    kept, lost = await client.open(), await client.open()
    node = await node_of(store, lost, ranch)
    was = family(node)
    old = ranch.running.pop()

    old.kill()
    old.wait()
    node.kill()
    ranch.run("orchestrator")

    codes = await assert_ended(store, client, lost, was)
    assert codes[-1] == "TERM"
    assert await client.title(kept) == Reply(200, "corral")
    session = await client.open()
    assert await store.scard(grid.ORCHESTRATOR_SLOTS(ranch.orchestrator)) == SLOTS
    await check_slots(store, [ranch.orchestrator])
    for each in (session, kept):
        assert await client.close(each) == Reply(200, None)


async def kill_orchestrator(store: Store, ranch: Ranch) -> None:
    """A new life for the orchestrator, after a sudden end."""
    old = ranch.running.pop()
    old.kill()
    old.wait()
    new = ranch.run("orchestrator")
    await eventually(lambda: runs(store, new.pid), DEADLINE)


async def runs(store: Store, pid: int) -> bool:
    return str(pid) in {role["pid"] for role in await running_roles(store)}


async def test_an_adopted_node_that_dies_is_noticed_at_once(
    store: Store, client: Client, ranch: Ranch
) -> None:
    session = await client.open()
    node = await node_of(store, session, ranch)
    was = family(node)
    await kill_orchestrator(store, ranch)
    assert await client.title(session) == Reply(200, "corral")

    node.kill()

    # Long before its beat runs out, and before anybody looks for lost slots.
    codes = await assert_ended(store, client, session, was)
    assert codes[-1] == "TERM"


async def test_an_adopted_node_ends_with_its_new_orchestrator(
    store: Store, client: Client, ranch: Ranch
) -> None:
    session = await client.open()
    was = family(await node_of(store, session, ranch))
    await kill_orchestrator(store, ranch)

    leaving = ranch.running.pop()
    leaving.terminate()
    await eventually(lambda: count_draining(store))
    leaving.terminate()  # It waits for nobody any more.
    await asyncio.to_thread(leaving.wait, DEADLINE)
    ranch.run("orchestrator")

    await assert_ended(store, client, session, was)


@pytest.mark.parametrize("step", ["SCHED", "BOOT"])
async def test_a_session_comes_though_its_orchestrator_is_killed_while_it_starts(
    store: Store, client: Client, ranch: Ranch, step: str
) -> None:
    before = set(await all_sessions(store))
    asking = asyncio.create_task(client.ask(browserName="chrome"))

    async def is_under_way() -> bool:
        new = set(await all_sessions(store)) - before
        return any([step in await codes_of(store, session) for session in new])

    await eventually(is_under_way)
    await kill_orchestrator(store, ranch)

    reply = await asking
    assert reply.status == 200
    assert await client.close(reply.value["sessionId"]) == Reply(200, None)


async def test_two_orchestrators_share_the_work_and_one_may_leave(
    store: Store, client: Client, ranch: Ranch
) -> None:
    other = ranch.run("orchestrator", data="other", slots=SLOTS)
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
    ranch.running.remove(other)
    assert await has_orchestrators(store, 1)


async def count_draining(store: Store) -> int:
    return len([each for each in await orchestrators(store) if each.draining])


async def has_orchestrators(store: Store, count: int) -> bool:
    return await store.scard(grid.ORCHESTRATORS()) == count
