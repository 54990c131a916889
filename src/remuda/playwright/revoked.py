"""The end of the connections of a token that was revoked, or of an account that was deleted: those to
Playwright's browsers, and WebSockets to sessions, which another token may have started.

Connections are held by gateways, so what is to end is written to Redis and a bell is rung; each gateway then
closes its own. It looks by itself too, since a ring can be lost.
"""

from collections.abc import Callable
from functools import partial

import msgspec

from remuda.accounts.model import Grant
from remuda.base import clock
from remuda.base.log import get_logger
from remuda.fleet.bell import bell_of
from remuda.fleet.origin import Origin
from remuda.fleet.tasks import repeat
from remuda.keyspace.playwright import PLAYWRIGHT_ORIGINS, PLAYWRIGHT_REVOKED
from remuda.playwright.model import ServedBrowser
from remuda.store import Store

log = get_logger(__name__)

BELL = bell_of("playwright:revoked")
LOOK_EVERY = 5.0
# Far longer than a client waits for a browser, which it then loses at once.
KEEP = 600


async def end_connections(store: Store, account: str, token: str | None) -> int:
    """Has the connections ended that were opened with this token, or with any of the account; how many."""
    async with store.transaction() as transaction:
        transaction.hset(PLAYWRIGHT_REVOKED(), {f"{account}/{token or ''}": clock.now()})
        transaction.expire(PLAYWRIGHT_REVOKED(), KEEP)
        origins = [transaction.hvals(PLAYWRIGHT_ORIGINS(browser)) for browser in ServedBrowser]
        transaction.publish(BELL)
    found = [msgspec.json.decode(text) for texts in origins for text in await texts]
    ended = sum(1 for each in found if each["account"] == account and token in (None, each.get("token")))
    if ended:
        log.info("connections end with their token", account=account, connections=ended)
    return ended


class Revoked:
    """What a gateway knows of revoked tokens. Run `run()` as a task of the gateway's."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._before: dict[str, str] = {}

    async def run(self) -> None:
        """Keeps it known, until it is cancelled."""
        with self._store.subscribe(BELL) as rings:
            failure = "revoked tokens not looked at"
            await repeat(self._look, every=LOOK_EVERY, rings=rings, failure=failure)

    async def _look(self) -> None:
        self._before = await self._store.hgetall(PLAYWRIGHT_REVOKED())

    def cause(self, client: Origin | Grant, since: float) -> str:
        """Why a connection ends that was asked for at this Unix time; empty if it does not."""
        if since < float(self._before.get(f"{client.account}/", 0)):
            return f"The account {client.account} was deleted"
        if since < float(self._before.get(f"{client.account}/{client.token}", 0)):
            return f"The token {client.token} was revoked"
        return ""

    def cause_for(self, client: Origin | Grant) -> Callable[[], str]:
        """The same, again and again, for a connection that is asked for now."""
        return partial(self.cause, client, clock.now())
