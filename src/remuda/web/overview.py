"""Everything the dashboard shows, in one snapshot: what each room shows of itself, and the roles that run."""

from typing import Any

from msgspec import Struct, defstruct
from msgspec.structs import fields, replace

from remuda import __version__
from remuda.base import clock
from remuda.fleet.role import running_roles
from remuda.fleet.room import Surroundings
from remuda.store import Store


class RoleView(Struct, rename="camel"):
    """A running role: its address, empty if it does not listen, what it speaks there, and what operators
    should know of its machine."""

    id: str
    name: str
    host: str
    pid: int
    version: str
    started_at: str
    address: str
    scheme: str
    warning: str


class Overview:
    """Reads the snapshot. Its type, `kind`, has the fields of all rooms side by side."""

    def __init__(self, on: Surroundings) -> None:
        self._store = on.store
        self._parts = [room.overview(on) for room in on.rooms if room.overview is not None]
        self.kind = defstruct(
            "Overview",
            [
                ("at", str),
                ("version", str),
                *((field.name, field.type) for part in self._parts for field in fields(part.kind)),
                ("roles", list[RoleView]),
            ],
            namespace={"__doc__": "The herd at one moment."},
        )

    async def read(self, limited_to: str | None) -> Struct:
        """The herd as it is now, as an account sees it; None: as an operator does."""
        shown: dict[str, Any] = {}
        for part in self._parts:
            shown |= _values(await part.read(limited_to))
        roles = await read_roles(self._store) if limited_to is None else []
        return self.kind(at=clock.rfc3339(), version=__version__, **shown, roles=roles)

    def without_time(self, overview: Struct) -> Struct:
        """The overview less what changes by itself: two of these differ only when something has happened."""
        lasting: dict[str, Any] = {}
        for part in self._parts:
            shown = part.kind(**{field.name: getattr(overview, field.name) for field in fields(part.kind)})
            lasting |= _values(part.without_time(shown))
        return replace(overview, at="", **lasting)


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
            # Roles of the version before do not say.
            scheme=record.get("scheme", "http"),
            warning=record.get("warning", ""),
        )
        for record in await running_roles(store)
    ]


def _values(part: Struct) -> dict[str, Any]:
    return {field.name: getattr(part, field.name) for field in fields(part)}
