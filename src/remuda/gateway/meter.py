"""What each account sends through the door, in plain ints; brought to metering once a second.

Traffic counts for the account of the token that was shown, so that no session has to be looked up for it.
"""

from remuda.accounts.model import Grant
from remuda.base.errors import RemudaError
from remuda.base.log import get_logger
from remuda.gateway.destinations import Backend
from remuda.grid.usage import GRID
from remuda.metering.push import Event, Metering
from remuda.playwright.usage import PLAYWRIGHT
from remuda.storage.usage import ARTIFACTS

log = get_logger(__name__)

_ACTIONS = {GRID.name: "sendCommands", PLAYWRIGHT.name: "sendFrames", ARTIFACTS.name: "download"}
_SERVICES = {
    Backend.NODE: GRID.name,
    Backend.MANAGER: GRID.name,
    Backend.CDP: GRID.name,
    Backend.BIDI: GRID.name,
    Backend.PLAYWRIGHT: PLAYWRIGHT.name,
    Backend.STORAGE: ARTIFACTS.name,
}
"""What a request is counted for; those to the API are not metered."""


class Tally:
    """What one account has sent to one service since the last flush."""

    __slots__ = ("bytes_in", "bytes_out", "requests")

    def __init__(self) -> None:
        self.requests = self.bytes_in = self.bytes_out = 0


class Meter:
    """The tallies of a door. Each stays the same object, so that it can be kept with a head."""

    def __init__(self, metering: Metering) -> None:
        self._metering = metering
        self._tallies: dict[tuple[str, str], Tally] = {}
        self._owed: list[Event] = []
        """What is being pushed, or could not be."""

    def tally(self, backend: Backend, grant: Grant) -> Tally | None:
        """Where requests to this backend are counted; None if they are not metered."""
        service = _SERVICES.get(backend)
        # Who shows no token and is let in nevertheless reads what is shared.
        if service is None or not grant.account:
            return None
        return self.tally_for(service, grant.account)

    def tally_for(self, service: str, account: str) -> Tally:
        """The one tally of an account and a service."""
        return self._tallies.setdefault((service, account), Tally())

    async def flush(self) -> None:
        """Pushes what was counted; what cannot be pushed comes with the next."""
        # The same events again, by the same ids: Redis may have counted them, and only its answer was lost.
        events = self._owed = self._owed or self._take()
        try:
            await self._metering.push_all(events)
        except RemudaError as error:
            log.warning("usage kept", reason=error.message)
            return
        if self._owed is events:
            self._owed = []

    def _take(self) -> list[Event]:
        """Events for what was counted since the last time."""
        events = []
        for (service, account), tally in self._tallies.items():
            if tally.requests or tally.bytes_in or tally.bytes_out:
                params = {
                    "accountId": account,
                    "requests": tally.requests,
                    "incomingBytes": tally.bytes_in,
                    "outgoingBytes": tally.bytes_out,
                }
                tally.requests = tally.bytes_in = tally.bytes_out = 0
                events.append(self._metering.check(_ACTIONS[service], params, service=service))
        return events

    async def finish(self) -> None:
        """Pushes the last of it."""
        await self.flush()
        if not self._owed:
            await self.flush()
        await self._metering.finish()
