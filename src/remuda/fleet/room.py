"""What a room is made of. Each room declares itself once, as the `ROOM` of its `room.py`; the command line,
the API and the operators' tools collect what rooms declare, and know no room by name.

A declaration is cheap to import: what needs a web framework or a browser is imported by the function that
needs it. A process thus loads only what its own roles use.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from remuda.base.config import Config
from remuda.base.ids import RoleId
from remuda.fleet.internal import NO_TLS, InternalTls
from remuda.fleet.origin import Origin
from remuda.fleet.ownership import OwnerKind
from remuda.fleet.role import DRAIN_TIMEOUT, Role
from remuda.fleet.services import Service
from remuda.fleet.sweep import Sweep
from remuda.store import Store

if TYPE_CHECKING:
    from remuda.fleet.metrics import Metric
    from remuda.fleet.route import Route

T = TypeVar("T", bound=Struct)

EndUses = Callable[[str, str | None], Awaitable[int]]
"""Ends what an account has started with the token of this name, or with any; gives how many that are."""
WaitForRefusal = Callable[[Origin], Coroutine[Any, Any, None]]
"""Returns when a request of this origin would be refused that was let in before."""


@dataclass(frozen=True)
class Surroundings:
    """What a role is made with."""

    store: Store
    config: Config
    rooms: Sequence["Room"]
    """All rooms, for the roles that collect what rooms declare."""
    tls: InternalTls = NO_TLS
    """Between this process and others of the herd."""


@dataclass(frozen=True, kw_only=True)
class RoleKind:
    """A role that a process can be given."""

    name: str
    make: Callable[[Surroundings], Role]
    drain: Callable[[Config], float] = lambda _: DRAIN_TIMEOUT
    """Seconds that it may take to drain."""
    drain_alone: Callable[[Config], float] | None = None
    """The same for one that is alone in its process, where that differs."""
    needs_own_process: bool = False
    """Whether it cannot share a process: its end, for instance, takes all children of the process along."""
    is_front_door: bool = False
    """Whether it serves the public port. `remuda up` gives it a process and the listening socket."""
    ends_with_herd: bool = False
    """Whether it leaves at once when the herd that started it is gone: its clients come through that."""
    starts_browsers: bool = False
    """Whether browsers run on its machine. Then its Redis must ask everybody for a password."""
    raises_limit: bool = True
    """Whether its process takes as many file descriptors as the system grants."""


@dataclass(frozen=True, kw_only=True)
class Growth:
    """Further processes of a crew, each started when those that run are not enough."""

    most: int
    """How many of them, at most."""
    crowded: Callable[[Store], Awaitable[None]]
    """Returns when clients have been waiting for a while although all processes of the crew run."""
    idle: Callable[[Store, RoleId], Awaitable[None]]
    """Returns when this one has had no client for a while: then it is asked to leave."""


@dataclass(frozen=True, kw_only=True)
class Crew:
    """Processes of one role that `remuda up` starts when they are wanted, and keeps running from then on."""

    role: str
    args: Sequence[str] = ()
    count: int = 1
    hands_over: bool = False
    """Whether one that leaves is replaced while it still waits for its clients."""
    rests: bool = False
    """Whether one that leaves in good order is started again only when it is wanted again."""
    wanted: Callable[[Store], Awaitable[None]]
    """Returns as soon as a client waits for what they do."""
    growth: Growth | None = None
    bury: Callable[[Store, RoleId], Awaitable[None]]
    """Clears away what one of them has left in Redis that was killed."""


async def announce_nothing(_store: Store, announced: asyncio.Event) -> None:
    """For crews that clients wait for without being told that they can be started."""
    announced.set()


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What `remuda up` starts for a room when it is wanted."""

    crews: Sequence[Crew] = ()
    announce: Callable[[Store, asyncio.Event], Coroutine[Any, Any, None]] = announce_nothing
    """Says that these can be started, for as long as it runs; sets the event once it has said so."""


@dataclass(frozen=True)
class OverviewPart(Generic[T]):
    """What a room shows on the dashboard: fields of `/api/overview`, beside those of the other rooms."""

    kind: type[T]
    read: Callable[[str | None], Awaitable[T]]
    """Gets the account that the viewer is limited to; None for one that sees all."""
    without_time: Callable[[T], T]
    """Removes what changes by itself: two results differ only when something has happened."""


class CheckState(StrEnum):
    """How a thing is: fine, in the way of something, or in the way of everything."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """One thing of a machine that the doctor looked at."""

    name: str
    state: CheckState
    found: str
    advice: str = ""
    """What to do about it; empty when there is nothing to do."""


class Topic(IntEnum):
    """What a question of the doctor is about, in the order in which the answers are shown."""

    BROWSERS = 1
    RECORDING = 2
    HERD = 3
    """What any herd needs: Redis, the port, disk space, what the system grants."""
    PROTECTION = 4


@dataclass(frozen=True)
class Question:
    """What the doctor is to find out about a machine."""

    topic: Topic
    ask: Callable[[Config], Sequence[Check]]
    """May block: it is called in a thread. Changes nothing."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """All that the rest of the house has to know of a room."""

    name: str
    config: Sequence[type] = ()
    """Its sections of the config."""
    roles: Sequence[RoleKind] = ()
    demand: Callable[[Config], Demand] = lambda _: Demand()
    """What of it `remuda up` starts only when it is wanted. May block."""
    routes: Callable[[Surroundings], Sequence["Route"]] = lambda _: ()
    """What it serves over HTTP, below the front door."""
    about: str = ""
    """What these are for, in a line: the API's description has them under the name of the room and this."""
    overview: Callable[[Surroundings], OverviewPart[Any]] | None = None
    check_readiness: Callable[[Surroundings], Awaitable[str]] | None = None
    """Says in a sentence what it can do for a client; raises Unavailable with what is missing."""
    sweeps: Callable[[Surroundings], Mapping[str, Sweep]] = lambda _: {}
    """What its part of Redis and of the machine is to be cleaned of, by name, in the order to do it."""
    owners: Callable[[Surroundings], Sequence[OwnerKind]] = lambda _: ()
    """What of it can own artifacts."""
    end_uses: Callable[[Surroundings], EndUses] | None = None
    """Ends what of it was started with a token that was revoked."""
    refusals: Callable[[Surroundings], WaitForRefusal] | None = None
    """Tells when it lets a client in no longer. The front door asks only when a request comes, and a stream
    is one request for as long as it is watched."""
    services: Sequence[Service] = ()
    """What of it is metered."""
    metrics: Callable[[], Sequence["Metric[Any]"]] = lambda: ()
    """What of it is told at /metrics."""
    questions: Callable[[], Sequence[Question]] = lambda: ()
    """What it needs of a machine, for the doctor."""


def role_kinds(rooms: Sequence[Room]) -> Mapping[str, RoleKind]:
    """Every role of these rooms, by name."""
    return {kind.name: kind for room in rooms for kind in room.roles}
