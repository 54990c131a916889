"""Everything the dashboard shows, in one snapshot."""

from msgspec import Struct
from msgspec.structs import replace

from remuda import __version__
from remuda.base import clock
from remuda.fleet.role import running_roles
from remuda.grid.model import State
from remuda.grid.view import Browser, OrchestratorView, SessionsView, SessionView, orchestrators
from remuda.store import Store


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


class Overview(Struct):
    """The herd at one moment. `counts` are sessions by state, also those too many to be shown."""

    at: str
    version: str
    slots: SlotCount
    counts: dict[str, int]
    sessions: list[SessionView]
    queue: list[QueuedSession]
    orchestrators: list[OrchestratorView]
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
        roles=await read_roles(store),
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
    )


def _queued(session: SessionView) -> QueuedSession:
    return QueuedSession(
        session.id, session.name, session.requested, session.position, session.queued_at, session.age
    )
