"""Everything the dashboard shows, in one snapshot."""

from msgspec import Struct
from msgspec.structs import replace

from remuda import __version__
from remuda.base import clock
from remuda.fleet.role import running_roles
from remuda.grid.model import State
from remuda.grid.view import Browser, OrchestratorView, SessionsView, SessionView, orchestrators
from remuda.keyspace.playwright import ACTIVE_CONNECTIONS
from remuda.playwright.view import WaitingView, WorkerView, read_waiting, read_workers
from remuda.store import Store

MAX_WORKERS = 200
"""Playwright workers of each browser that are shown; the API lists them all."""


class SlotCount(Struct):
    """Slots of the orchestrators that are alive."""

    used: int
    total: int


class QueuedSession(Struct, rename="camel"):
    """A session in the queue: its position among those who want the same, and for how many seconds.

    It has no position any more once it has a slot and waits for its node to be scheduled.
    """

    id: str
    name: str
    requested: list[Browser]
    position: int | None
    queued_at: str | None
    waited: float


class RoleView(Struct, rename="camel"):
    """A role that runs, and where to reach it; no address when it does not listen."""

    id: str
    name: str
    host: str
    pid: int
    version: str
    started_at: str
    address: str


class PlaywrightView(Struct):
    """Playwright workers, the connections that they serve, and the clients that wait for one."""

    connections: int
    workers: list[WorkerView]
    queue: list[WaitingView]


class Overview(Struct):
    """The herd at one moment. `counts` are sessions by state, also those too many to be shown."""

    at: str
    version: str
    slots: SlotCount
    counts: dict[str, int]
    sessions: list[SessionView]
    queue: list[QueuedSession]
    orchestrators: list[OrchestratorView]
    playwright: PlaywrightView
    roles: list[RoleView]


async def read_overview(store: Store, view: SessionsView) -> Overview:
    """The herd as it is now."""
    active = await view.active()
    found = await orchestrators(store)
    alive = [each for each in found if each.alive]
    return Overview(
        at=clock.rfc3339(),
        version=__version__,
        slots=SlotCount(used=sum(each.held for each in alive), total=sum(len(each.slots) for each in alive)),
        counts=active.counts,
        sessions=active.sessions,
        queue=[_queued(each) for each in active.sessions if each.state is State.QUEUED],
        orchestrators=found,
        playwright=await read_playwright(store),
        roles=await read_roles(store),
    )


async def read_playwright(store: Store) -> PlaywrightView:
    """What there is of Playwright now."""
    workers = await read_workers(store, limit=MAX_WORKERS)
    active = await store.send("HVALS", ACTIVE_CONNECTIONS())
    return PlaywrightView(
        connections=sum(int(count) for count in active), workers=workers, queue=await read_waiting(store)
    )


async def read_roles(store: Store) -> list[RoleView]:
    """The roles that run, in the order of their start."""
    return [
        RoleView(
            id=record["id"],
            name=record["name"],
            host=record["host"],
            pid=int(record["pid"]),
            version=record["version"],
            started_at=record["startedAt"],
            address=record["address"],
        )
        for record in await running_roles(store)
    ]


def without_time(overview: Overview) -> Overview:
    """The overview less what changes by itself: two of these differ only when something has happened."""
    return replace(
        overview,
        at="",
        sessions=[replace(each, age=0.0) for each in overview.sessions],
        queue=[replace(each, waited=0.0) for each in overview.queue],
        playwright=replace(
            overview.playwright,
            workers=[replace(each, beat_at=None) for each in overview.playwright.workers],
            queue=[replace(each, waited=0.0) for each in overview.playwright.queue],
        ),
    )


def _queued(session: SessionView) -> QueuedSession:
    return QueuedSession(
        session.id, session.name, session.requested, session.position, session.queued_at, session.age
    )
