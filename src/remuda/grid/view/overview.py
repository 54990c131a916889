"""The grid at one moment, as the dashboard shows it, and whether a session could be created."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from remuda.base.errors import StoreUnavailable, Unavailable
from remuda.grid.abandoned import find_absent
from remuda.grid.model import State
from remuda.grid.view.model import BrowserView, OrchestratorView, SessionView
from remuda.grid.view.orchestrators import live_managers, orchestrators
from remuda.grid.view.sessions import SessionsView
from remuda.keyspace import grid
from remuda.store import Store
from remuda.store.memory import FULL, read_memory
from remuda.store.refusal import check_writes


class SlotCount(Struct):
    """Slots of live orchestrators."""

    used: int
    total: int


class QueuedSession(Struct, rename="camel"):
    """A session in the queue: its position, and for how many seconds it has waited.

    It has no position any more once it has a slot and waits for its node to be scheduled.
    """

    id: str
    name: str
    requested: list[BrowserView]
    position: int | None
    queued_at: str | None
    waited: float


class GridOverview(Struct):
    """The grid at one moment."""

    slots: SlotCount
    counts: Annotated[dict[str, int], Meta(description="Sessions by state, also those too many to be shown.")]
    sessions: list[SessionView]
    queue: list[QueuedSession]
    orchestrators: list[OrchestratorView]


async def read_overview(store: Store, limited_to: str | None) -> GridOverview:
    """The grid as it is now. An account sees its own sessions, and how many slots there are and are taken;
    which accounts share them, and where they are, is for operators."""
    active = await SessionsView(store).active(limited_to=limited_to)
    found = await orchestrators(store)
    alive = [each for each in found if each.alive]
    return GridOverview(
        slots=SlotCount(used=sum(each.held for each in alive), total=sum(len(each.slots) for each in alive)),
        counts=active.counts,
        sessions=active.sessions,
        queue=[
            QueuedSession(each.id, each.name, each.requested, each.position, each.queued_at, each.age)
            for each in active.sessions
            if each.state is State.QUEUED
        ],
        orchestrators=found if limited_to is None else [],
    )


def without_time(overview: GridOverview) -> GridOverview:
    """The overview less what changes by itself."""
    return replace(
        overview,
        sessions=[replace(each, age=0.0) for each in overview.sessions],
        queue=[replace(each, waited=0.0) for each in overview.queue],
    )


async def check_readiness(store: Store) -> str:
    """A sentence that a session can be created; Unavailable says what is missing."""
    managers = await live_managers(store)
    # The last beat of one that was killed lives on for a minute. WebGrid's have nothing else.
    killed = await find_absent(store, await store.smembers(grid.ORCHESTRATORS_PRESENT()), kind="orchestrator")
    found = [each for each in await orchestrators(store) if each.id not in killed]
    reason = await why_unusable(store, found)
    # First: processes that Redis refuses leave it, and look like killed ones.
    if reason:
        raise Unavailable(f"No session can be created: {reason}.")
    if not managers:
        raise Unavailable("No manager is running, so no session can be created.")
    if not any(each.alive for each in found):
        raise Unavailable("No orchestrator is running, so no node can be started.")
    if not any(each.in_service for each in found):
        raise Unavailable("Every orchestrator is draining, so no session can be created.")
    if not any(each.in_service and each.slots for each in found):
        raise Unavailable("No orchestrator has a slot.")
    return "A session can be created."


async def why_unusable(store: Store, found: Sequence[OrchestratorView]) -> str:
    """What keeps a herd that runs from starting sessions, in words; empty when nothing does."""
    try:
        await check_writes(store)
        memory = await read_memory(store)
    except StoreUnavailable as error:
        return error.message.rstrip(".")
    if memory.share >= FULL:
        return f"Redis is full ({memory})"
    if any(each.in_service for each in found):
        return ""
    return next((each.obstacle for each in found if each.alive and each.obstacle), "")
