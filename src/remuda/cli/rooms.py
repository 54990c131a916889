"""The one list of rooms: a new room is a folder with a `room.py`, and a line here."""

from collections.abc import Sequence

from remuda.accounts.room import ROOM as ACCOUNTS
from remuda.archive.room import ROOM as ARCHIVE
from remuda.base.config import HerdConfig
from remuda.base.confinement import MARKS, ProtectionConfig
from remuda.fleet.browsers import BrowserConfig
from remuda.fleet.lifeline import VARIABLE as LIFELINE
from remuda.fleet.role import ROLE_ID
from remuda.fleet.room import Room
from remuda.fleet.tracing import TracingConfig
from remuda.gateway.room import LISTENER
from remuda.gateway.room import ROOM as GATEWAY
from remuda.grid.room import ROOM as GRID
from remuda.metering.room import ROOM as METERING
from remuda.ops.room import ROOM as OPS
from remuda.playwright.room import ROOM as PLAYWRIGHT
from remuda.storage.room import ROOM as STORAGE
from remuda.web.room import ROOM as WEB

ROOMS: Sequence[Room] = (GATEWAY, GRID, WEB, OPS, STORAGE, PLAYWRIGHT, ARCHIVE, METERING, ACCOUNTS)
"""In the order in which their roles are named to people."""

SECTIONS: Sequence[type] = (
    HerdConfig,
    *(section for room in ROOMS for section in room.config),
    BrowserConfig,
    ProtectionConfig,
    TracingConfig,
)
"""Every section of the config: those of no room, and those that rooms declare."""

VARIABLES = frozenset((*MARKS, LIFELINE, LISTENER, ROLE_ID, "REMUDA_SERVER", "REMUDA_TOKEN"))
"""Variables that are not options: what processes of a herd hand to each other, and what commands ask with."""
