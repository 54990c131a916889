"""The JSON API and the dashboard."""

from remuda.fleet.role import Role
from remuda.fleet.room import RoleKind, Room, Surroundings


def _api(on: Surroundings) -> Role:
    from remuda.web.api import Api

    return Api(on)


ROOM = Room(
    name="web",
    about="The dashboard, the state of the whole herd, and probes",
    roles=[RoleKind(name="api", make=_api)],
)
