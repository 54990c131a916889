"""Orchestrators with their slots, and the managers, as a person wants to see them."""

from collections.abc import Awaitable
from typing import Any

from remuda.grid.abandoned import find_absent
from remuda.grid.view.model import BrowserView, Machine, OrchestratorView, SlotState, SlotView
from remuda.keyspace import grid
from remuda.store import Store


async def orchestrators(store: Store) -> list[OrchestratorView]:
    """Every orchestrator that is registered, alive or not."""
    ids = sorted(await store.smembers(grid.ORCHESTRATORS()))
    asked = [(each, _ask(store, each)) for each in ids]  # All are under way before the first is awaited.
    return [_orchestrator(each, [await reply for reply in replies]) for each, replies in asked]


async def live_managers(store: Store) -> int:
    """How many managers beat, less those that were killed."""
    killed = await find_absent(store, await store.smembers(grid.MANAGERS_CREATING()))
    ids = {*await store.smembers(grid.MANAGERS())}.difference(killed)
    beats = [store.exists(grid.MANAGER_HEARTBEAT(each)) for each in ids]
    return sum([await beat for beat in beats])


def _ask(store: Store, each: str) -> list[Awaitable[Any]]:
    return [
        store.hget(grid.ORCHESTRATOR(each), "type"),
        store.exists(grid.ORCHESTRATOR_HEARTBEAT(each)),
        store.exists(grid.ORCHESTRATOR_DRAIN(each)),
        store.get(grid.ORCHESTRATOR_PLATFORM_NAME(each)),
        store.hmget(grid.ORCHESTRATOR_MACHINE(each), *Machine.__struct_fields__),
        store.smembers(grid.ORCHESTRATOR_BROWSERS(each)),
        store.smembers(grid.ORCHESTRATOR_SLOTS(each)),
        store.lrange(grid.ORCHESTRATOR_SLOTS_AVAILABLE(each)),
        store.lrange(grid.ORCHESTRATOR_SLOTS_RECLAIMED(each)),
        store.hgetall(grid.ORCHESTRATOR_HOLDERS(each)),
        store.llen(grid.ORCHESTRATOR_BACKLOG(each)),
        store.llen(grid.ORCHESTRATOR_PENDING(each)),
        store.get(grid.ORCHESTRATOR_OBSTACLE(each)),
    ]


def _orchestrator(each: str, replies: list[Any]) -> OrchestratorView:
    kind, alive, draining, platform, machine, browsers, *of_slots, backlog, pending, obstacle = replies
    slots, available, reclaimed, holders = of_slots
    free = dict.fromkeys(available, SlotState.AVAILABLE) | dict.fromkeys(reclaimed, SlotState.RECLAIMED)
    views = [
        # One that is held without a holder is lost, and cannot be taken until its orchestrator has found it.
        SlotView(slot, free.get(slot, SlotState.HELD), None if slot in free else holders.get(slot))
        for slot in sorted(slots, key=_number)
    ]
    states = [view.state for view in views]
    arch, system, system_version = machine
    entries = (entry.partition("::") for entry in browsers)
    offered = [BrowserView(name, version, platform or "") for name, _, version in entries]
    return OrchestratorView(
        id=each,
        type=kind or "",
        alive=bool(alive),
        draining=bool(draining),
        obstacle=obstacle or "",
        platform=platform or "",
        # WebGrid's own orchestrators tell only the platform.
        machine=Machine(arch or "", system or platform or "", system_version or ""),
        browsers=sorted(offered, key=lambda browser: (browser.name.lower(), browser.version)),
        slots=views,
        available=states.count(SlotState.AVAILABLE),
        reclaimed=states.count(SlotState.RECLAIMED),
        held=states.count(SlotState.HELD),
        backlog=backlog,
        pending=pending,
    )


def _number(slot: str) -> tuple[int, str]:
    number = slot.rpartition("/")[2]
    return (int(number) if number.isdecimal() else 0), slot
