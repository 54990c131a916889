"""A child that is started again and again costs its herd nothing."""

import asyncio

import psutil

from herds import DEADLINE
from remuda.cli.child import Child
from waiting import eventually


async def test_a_child_that_ends_often_leaves_no_descriptor_open() -> None:
    child = Child(["nothing"], {"REMUDA_REDIS": "unix:///nowhere"}, is_vital=False)
    me = psutil.Process()
    running = asyncio.create_task(child.keep_running())
    seen: dict[int, int] = {}

    def has_lived_three_times() -> bool:
        if child.pid:
            seen.setdefault(child.pid, me.num_fds())
        return len(seen) == 3

    try:
        await eventually(has_lived_three_times, DEADLINE)
    finally:
        running.cancel()
        await asyncio.wait([running])
        await child.stop(asyncio.Event())

    first, _, last = seen.values()
    assert last <= first
