"""Orchestrators and their slots as the view shows them."""

from remuda.grid.capabilities import Offer
from remuda.grid.manager import Manager
from remuda.grid.view import BrowserView, SlotState, SlotView, live_managers, orchestrators
from remuda.keyspace import grid
from remuda.store import Store
from waiting import eventually
from web_states import CHROME, FIREFOX, SessionWriter, orchestrator, running


async def test_an_orchestrator_shows_what_it_can_start(store: Store) -> None:
    async with running(orchestrator(store, "ranch", CHROME, FIREFOX, slots=3)):
        [shown] = await orchestrators(store)

        assert (shown.id, shown.type, shown.alive, shown.platform) == ("ranch", "local", True, "linux")
        assert shown.browsers == [
            BrowserView("chrome", "130.0.6723.91", "linux"),
            BrowserView("firefox", "128.3.1", "linux"),
        ]
        assert (shown.available, shown.reclaimed, shown.held) == (3, 0, 0)
        assert (shown.backlog, shown.pending) == (0, 0)


async def test_browsers_stand_in_the_order_of_their_names(store: Store) -> None:
    names = ["chrome", "chrome-headless-shell", "firefox", "MiniBrowser"]
    async with running(orchestrator(store, "ranch", *(Offer(name, "1.0", "linux") for name in names))):
        (shown,) = await orchestrators(store)

        assert [browser.name for browser in shown.browsers] == names


async def test_each_slot_is_available_reclaimed_or_held_by_a_session(store: Store) -> None:
    writer = SessionWriter(store)
    async with running(orchestrator(store, slots=12)):
        ended = await writer.serve()
        waiting, slot = await writer.claim()
        await writer.end(ended)

        [shown] = await orchestrators(store)

        assert [each.id for each in shown.slots] == [f"ranch/{number}" for number in range(1, 13)]
        assert (shown.available, shown.reclaimed, shown.held) == (10, 1, 1)
        assert SlotView(slot, SlotState.HELD, waiting) in shown.slots
        assert [each.session for each in shown.slots if each.state is not SlotState.HELD] == [None] * 11
        assert shown.backlog == 2  # Nobody takes sessions from it here.


async def test_an_orphaned_slot_is_held_by_nobody(store: Store) -> None:
    async with running(orchestrator(store, slots=1)):
        await store.delete(grid.ORCHESTRATOR_SLOTS_AVAILABLE("ranch"))

        [shown] = await orchestrators(store)

        assert shown.slots == [SlotView("ranch/1", SlotState.HELD, None)]


async def test_an_orchestrator_without_a_heartbeat_is_shown_as_dead(store: Store) -> None:
    async with running(orchestrator(store)):
        await store.delete(grid.ORCHESTRATOR_HEARTBEAT("ranch"))

        [shown] = await orchestrators(store)

        assert not shown.alive


async def test_a_manager_that_was_killed_does_not_count_any_more(store: Store, redis_url: str) -> None:
    async with Store(redis_url) as connection:
        killed = Manager(connection)
        await killed.start()
        assert await live_managers(store) == 1

    await eventually(lambda: counts(store, 0))
    assert await store.exists(grid.MANAGER_HEARTBEAT(killed.manager_id))


async def test_a_manager_of_webgrid_which_listens_nowhere_counts_while_it_beats(store: Store) -> None:
    await store.sadd(grid.MANAGERS(), "theirs")
    await store.set(grid.MANAGER_HEARTBEAT("theirs"), "2026-11-18T12:00:00Z", ex=60)

    assert await counts(store, 1)


async def counts(store: Store, managers: int) -> bool:
    return await live_managers(store) == managers


async def test_only_managers_that_beat_are_counted(store: Store) -> None:
    dead, alive = Manager(store), Manager(store)
    async with running(dead, alive):
        await store.delete(grid.MANAGER_HEARTBEAT(dead.manager_id))

        assert await live_managers(store) == 1
