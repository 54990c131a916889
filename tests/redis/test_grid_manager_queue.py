"""Those who wait for a manager: each in its turn, whoever comes, leaves or has other wishes."""

import asyncio
import random
from functools import partial

from grids import advertise, check_counters, check_slots, codes_of, new_session
from managers import O1, O2, Client, has_logged, only_session, open_orchestrator, running
from remuda.base.ids import SessionId
from remuda.grid.model import State
from remuda.grid.sessions import Sessions
from remuda.grid.slots import OwnSlots, Slots, freed_bell
from remuda.keyspace import grid, metrics
from remuda.store import Store
from waiting import eventually


async def test_those_who_wait_are_served_in_the_order_they_came(store: Store, client: Client) -> None:
    orchestrator = await open_orchestrator(store, 1)
    first = await new_session(store)
    await Slots(store).claim(first, [O1])
    await orchestrator.take()
    waiting = []
    for number in range(1, 7):
        waiting.append(client.asking())
        await eventually(partial(has_logged, store, "QUEUED", number))

    session = first
    for asking in waiting:
        await orchestrator.end(session)
        session = await orchestrator.take()
        await orchestrator.bring(session)
        served, _ = await asyncio.wait(waiting, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        assert served == {asking}
        waiting = [each for each in waiting if each is not asking]


async def test_the_order_holds_across_managers(store: Store, redis_url: str) -> None:
    orchestrator = await open_orchestrator(store, 0)
    async with (
        Store(redis_url) as other,
        running(store) as (_, one),
        running(other) as (_, two),
    ):
        waiting = []
        for number in range(6):
            waiting.append((one, two)[number % 2].asking())
            await eventually(partial(has_logged, store, "QUEUED", number + 1))
        # One leaves from each manager, so that both the head and the middle move up.
        for leaving in (waiting.pop(3), waiting.pop(0)):
            leaving.cancel()
        await eventually(lambda: has_logged(store, "CLEFT", 2))
        orchestrator = await open_orchestrator(store, 1)

        for asking in waiting:
            session = await orchestrator.take()
            await orchestrator.bring(session)
            served, _ = await asyncio.wait(waiting, timeout=10, return_when=asyncio.FIRST_COMPLETED)
            assert served == {asking}
            waiting = [each for each in waiting if each is not asking]
            await orchestrator.end(session)


async def test_a_crowd_costs_what_its_members_cost(store: Store, client: Client) -> None:
    await open_orchestrator(store, 0)
    crowd = [client.asking() for _ in range(100)]
    await eventually(lambda: has_logged(store, "QUEUED", 100))
    await store.send("CONFIG", "RESETSTAT")

    for _ in range(10):
        await OwnSlots(store, O1, count=0).recycle()
        await store.publish(freed_bell())
    stats = await store.send("INFO", "commandstats")

    # A ring makes the head of the line look, and nobody else.
    scripts = [line for line in stats.splitlines() if line.startswith("cmdstat_evalsha:")]
    assert all(int(line.split("calls=")[1].split(",")[0]) <= 3 * 10 for line in scripts)
    for asking in crowd:
        asking.cancel()
    await eventually(lambda: has_logged(store, "CLEFT", 100))


async def test_a_client_with_other_wishes_does_not_wait_behind_those_who_cannot_be_served(
    store: Store, client: Client
) -> None:
    await advertise(store, O2, "firefox::74.0.1")
    orchestrator = await open_orchestrator(store, 1)
    stuck = client.asking({"capabilities": {"alwaysMatch": {"browserName": "firefox"}}})
    await eventually(lambda: has_logged(store, "QUEUED"))

    asking = client.asking()
    await orchestrator.bring(await orchestrator.take())

    assert (await asking).status == 200
    assert not stuck.done()


async def test_an_orchestrator_that_comes_later_serves_those_who_wait(store: Store, client: Client) -> None:
    await open_orchestrator(store, 0)
    asking = client.asking()
    await eventually(lambda: has_logged(store, "QUEUED"))

    late = await open_orchestrator(store, 1, O2)
    await late.bring(await late.take())

    assert (await asking).status == 200


async def test_an_orchestrator_that_died_gets_nobody(store: Store, client: Client) -> None:
    await open_orchestrator(store, 5)
    await store.delete(grid.ORCHESTRATOR_HEARTBEAT(O1))
    living = await open_orchestrator(store, 1, O2)
    asking = client.asking()

    await living.bring(await living.take())

    assert (await asking).status == 200
    assert await store.llen(grid.ORCHESTRATOR_BACKLOG(O1)) == 0


async def test_many_clients_on_few_slots_all_get_their_turn(store: Store, client: Client) -> None:
    orchestrator = await open_orchestrator(store, 3)

    async def work() -> None:
        while True:
            session = await orchestrator.take()
            await orchestrator.bring(session)
            await eventually(partial(is_alive, session))
            assert len(await store.hgetall(grid.ORCHESTRATOR_HOLDERS(O1))) <= 3
            await orchestrator.end(session)

    async def is_alive(session: SessionId) -> bool:
        return await Sessions(store).state(session) is State.ALIVE

    hands = [asyncio.create_task(work()) for _ in range(3)]
    replies = await asyncio.gather(*(client.ask() for _ in range(40)))
    for hand in hands:
        hand.cancel()

    assert {reply.status for reply in replies} == {200}
    assert len({reply.value["sessionId"] for reply in replies}) == 40
    await check_slots(store, [O1])
    await check_counters(store)
    assert await store.get(metrics.METRICS_STARTUP_COUNT()) == "40"


# Clients that leave


async def test_a_client_that_leaves_the_queue_gives_its_place_up(store: Store, client: Client) -> None:
    orchestrator = await open_orchestrator(store, 0)
    leaving = client.asking()
    await eventually(lambda: has_logged(store, "QUEUED"))
    session = await only_session(store)
    staying = client.asking()
    await eventually(lambda: has_logged(store, "QUEUED", 2))

    leaving.cancel()
    await eventually(lambda: has_logged(store, "CLEFT"))
    orchestrator = await open_orchestrator(store, 1)
    await orchestrator.bring(await orchestrator.take())

    assert (await staying).status == 200
    assert await Sessions(store).state(session) is State.TERMINATED
    assert await codes_of(store, session) == ["QUEUED", "CLEFT"]


async def test_a_client_that_leaves_while_its_node_starts_has_its_session_ended(
    store: Store, client: Client
) -> None:
    orchestrator = await open_orchestrator(store, 1)
    leaving = client.asking()
    session = await orchestrator.take()
    await eventually(lambda: has_logged(store, "PENDING"))

    leaving.cancel()
    await eventually(lambda: has_logged(store, "CLEFT"))

    assert await Sessions(store).state(session) is State.TERMINATED


async def test_clients_that_leave_at_any_moment_leave_nothing_behind(store: Store, client: Client) -> None:
    await open_orchestrator(store, 3)
    chance = random.Random(7)

    async def drop_in() -> None:
        asking = client.asking()
        for _ in range(chance.randrange(60)):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])

    for _ in range(15):
        await asyncio.gather(*(drop_in() for _ in range(4)))

    async def all_ended() -> bool:
        return not await store.scard(grid.SESSIONS_ACTIVE())

    await eventually(all_ended)
    for session in await store.lrange(grid.ORCHESTRATOR_BACKLOG(O1)):
        await Slots(store).release(SessionId(session))
    await check_slots(store, [O1])
    assert await store.exists(grid.ORCHESTRATOR_HOLDERS(O1)) == 0
