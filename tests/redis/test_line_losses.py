"""The waiting line when somebody is lost: a process and its tickets, or what Redis knew."""

import asyncio

from lines import LINE, free, order, order_is, process
from remuda.base.errors import LineFull
from remuda.fleet.line import LEASE
from remuda.fleet.liveness import RENEWALS_PER_TTL
from remuda.fleet.origin import DEFAULT_ACCOUNT
from remuda.keyspace.fleet import LINE_LEASES, LINE_ORDER, LINES
from remuda.store import Store
from servers import Server
from waiting import eventually

ORDER = LINE_ORDER(DEFAULT_ACCOUNT, LINE)


async def test_the_tickets_of_a_dead_process_fall_out_within_their_lease(
    store: Store, redis_url: str
) -> None:
    async with (
        process(redis_url, lease=1, look_every=0.05) as living,
        process(redis_url, lease=1) as dead,
    ):
        await dead.queue("a", "b")
        await living.queue("c")
        # As by kill -9: nobody leaves, and nobody renews.
        dead.keeping.cancel()
        await dead.store.__aexit__(None, None, None)

        await free(store, "1")

        async with asyncio.timeout(5):
            assert await living.task("c") == "1"
        assert await order(store) == []


async def test_the_places_of_a_killed_process_hold_up_nobody_for_long(store: Store, redis_url: str) -> None:
    # The lease that the product has, and no look but at a call.
    async with process(redis_url, lease=LEASE) as living, process(redis_url, lease=LEASE) as dead:
        await dead.queue(*(f"d{number}" for number in range(32)))
        await living.queue("new")
        dead.keeping.cancel()
        await dead.store.__aexit__(None, None, None)

        await free(store, "1")

        # Half of what it took once; how long it takes on an idle machine follows from the lease.
        async with asyncio.timeout(5):
            assert await living.task("new") == "1"
        assert LEASE + LEASE / RENEWALS_PER_TTL < 2


async def test_a_process_that_was_too_slow_stands_where_it_stood(store: Store, redis_url: str) -> None:
    async with process(redis_url, lease=0.5) as slow, process(redis_url, lease=0.5) as other:
        await slow.queue("a", "b")
        await other.queue("c")
        slow.keeping.cancel()
        await eventually(lambda: order_is(store, ["c"]))

        slow.keeping = asyncio.create_task(slow.lines.run())

        await eventually(lambda: order_is(store, ["a", "b", "c"]))
        await free(store, "1")
        async with asyncio.timeout(5):
            assert await slow.task("a") == "1"


async def test_a_line_whose_processes_are_all_dead_is_gone_by_itself(store: Store, redis_url: str) -> None:
    async with process(redis_url, lease=1) as dead:
        await dead.queue("a")
        dead.keeping.cancel()

        async def is_gone() -> bool:
            return not await store.exists(ORDER, LINE_LEASES(LINE), LINES())

        await eventually(is_gone)


async def test_a_place_is_kept_longer_than_a_lease(store: Store, redis_url: str) -> None:
    async with process(redis_url, lease=3, look_every=0.05) as one:
        await one.queue("a", "b")
        before = await store.send("ZRANGE", ORDER, 0, -1, "WITHSCORES")
        began = asyncio.get_running_loop().time()
        await eventually(lambda: asyncio.get_running_loop().time() > began + 3.5)

        assert await store.send("ZRANGE", ORDER, 0, -1, "WITHSCORES") == before


async def test_the_dead_take_no_room_in_a_full_line(store: Store, redis_url: str) -> None:
    async with process(redis_url) as living, process(redis_url, lease=1) as dead:
        await dead.queue("a")
        dead.keeping.cancel()

        async def is_let_in() -> bool:
            try:
                async with living.lines.wait(LINE, "b", longest=1) as place:
                    return place.position == 1
            except LineFull:
                return False

        await eventually(is_let_in)


async def test_after_a_loss_of_all_data_everybody_stands_where_it_stood(server: Server) -> None:
    async with process(server.url) as one, process(server.url) as two, Store(server.url) as other:
        await one.queue("d")
        await two.queue("c")
        await one.queue("b")
        await two.queue("a")

        server.kill()
        await eventually(lambda: not (one.store.is_connected or two.store.is_connected))
        server.start()

        await eventually(lambda: order_is(other, ["d", "c", "b", "a"]))
        await free(other, "1", "2")
        async with asyncio.timeout(5):
            assert [await one.task("d"), await two.task("c")] == ["1", "2"]


async def test_a_ticket_that_is_lost_without_a_sound_joins_again(store: Store, redis_url: str) -> None:
    async with process(redis_url, lease=1, look_every=0.05) as one:
        await one.queue("a", "b", "c")

        await store.delete(ORDER, LINE_LEASES(LINE))
        async with one.lines.wait(LINE, "late"):
            await eventually(lambda: order_is(store, ["a", "b", "c", "late"]))


async def test_those_who_wait_outlast_an_absence_of_redis(server: Server) -> None:
    async with (
        process(server.url, lease=1, look_every=0.05, patience=0.5) as one,
        Store(server.url) as other,
    ):
        await one.queue("a", "b")
        server.pause()
        # Longer than the lease and than a command's patience.
        began = asyncio.get_running_loop().time()
        await eventually(lambda: asyncio.get_running_loop().time() > began + 2)
        server.resume()

        await eventually(lambda: order_is(other, ["a", "b"]))
        await free(other, "1", "2")
        async with asyncio.timeout(10):
            assert [await one.task("a"), await one.task("b")] == ["1", "2"]


async def test_half_a_loss_leaves_nobody_at_the_head_for_ever(store: Store, redis_url: str) -> None:
    async with process(redis_url) as one:
        await store.zadd(ORDER, {"ghost": 1})
        await store.expire(ORDER, 60)

        await one.queue("a")

        assert await order(store) == ["a"]
