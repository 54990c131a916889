"""Orchestrators with their slots, and the managers, as a person wants to see them."""

from collections.abc import Awaitable
from typing import Any

from remuda.grid.view.model import Browser, Machine, OrchestratorView, SlotState, SlotView
from remuda.keyspace import grid
from remuda.store import Store


async def orchestrators(store: Store) -> list[OrchestratorView]:
    """Every orchestrator that is registered, alive or not."""
    ids = sorted(await store.smembers(grid.ORCHESTRATORS()))
    asked = [(each, _ask(store, each)) for each in ids]  # All are under way before the first is awaited.
    return [_orchestrator(each, [await reply for reply in replies]) for each, replies in asked]


async def live_managers(store: Store) -> int:
    """How many managers beat."""
    beats = [store.exists(grid.MANAGER_HEARTBEAT(each)) for each in await store.smembers(grid.MANAGERS())]
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
    views = [_slot(slot, free, holders) for slot in sorted(slots, key=_number)]
    states = [view.state for view in views]
    return OrchestratorView(
        id=each,
        type=kind or "",
        alive=bool(alive),
        draining=bool(draining),
        obstacle=obstacle or "",
        platform=platform or "",
        machine=_machine(*machine, platform=platform),
        browsers=sorted((_browser(entry, platform or "") for entry in browsers), key=_by_name),
        slots=views,
        available=states.count(SlotState.AVAILABLE),
        reclaimed=states.count(SlotState.RECLAIMED),
        held=states.count(SlotState.HELD),
        backlog=backlog,
        pending=pending,
    )


def _machine(arch: str | None, name: str | None, version: str | None, *, platform: str | None) -> Machine:
    # WebGrid's own orchestrators say no more of it than the platform.
    return Machine(arch or "", name or platform or "", version or "")


def _browser(entry: str, platform: str) -> Browser:
    name, _, version = entry.partition("::")
    return Browser(name, version, platform)


def _by_name(browser: Browser) -> tuple[str, str]:
    return browser.name.lower(), browser.version


def _slot(slot: str, free: dict[str, SlotState], holders: dict[str, str]) -> SlotView:
    if slot in free:
        return SlotView(slot, free[slot], None)
    # Without a holder it is lost, and cannot be taken until its orchestrator has found it.
    return SlotView(slot, SlotState.HELD, holders.get(slot))


def _number(slot: str) -> tuple[int, str]:
    number = slot.rpartition("/")[2]
    return (int(number) if number.isdecimal() else 0), slot
