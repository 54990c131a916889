"""The grid's live settings over HTTP: the hash `timeouts`, read and changed while everything runs."""

from collections.abc import Sequence

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict
from starlette.requests import Request

from remuda.accounts.audit import Audit
from remuda.base.errors import InvalidArgument
from remuda.fleet.route import Route, origin_of
from remuda.fleet.settings import Seconds
from remuda.grid.timeouts import Timeouts, timeouts
from remuda.store import Store


class TimeoutsChange(Struct, rename="camel", forbid_unknown_fields=True):
    """Settings to change, in seconds; those that are not named stay."""

    queue: Seconds | UnsetType = UNSET
    scheduling: Seconds | UnsetType = UNSET
    node_startup: Seconds | UnsetType = UNSET
    driver_startup: Seconds | UnsetType = UNSET
    session_termination: Seconds | UnsetType = UNSET
    slot_reclaim_interval: Seconds | UnsetType = UNSET


class SettingsApi:
    """Shows settings, and changes them."""

    def __init__(self, store: Store) -> None:
        self._timeouts = timeouts(store)
        self._audit = Audit(store)

    async def read(self, _request: Request) -> Timeouts:
        return await self._timeouts.read()

    async def change(self, request: Request, body: TimeoutsChange) -> Timeouts:
        changes = {name: value for name, value in asdict(body).items() if value is not UNSET}
        if not changes:
            raise InvalidArgument("The body names no setting to change.")
        await self._timeouts.write(**changes)
        words = " ".join(f"{name}={value:g}" for name, value in changes.items())
        await self._audit.record(origin_of(request), "settings.change", words)
        return await self._timeouts.read()

    def routes(self) -> Sequence[Route]:
        return [
            Route("GET", "/api/settings", "Live settings: time-outs in seconds", self.read, Timeouts),
            Route(
                "PATCH",
                "/api/settings",
                "Change live settings; they are in force at once",
                self.change,
                Timeouts,
                body=TimeoutsChange,
                example={"queue": 120, "nodeStartup": 60},
            ),
        ]
