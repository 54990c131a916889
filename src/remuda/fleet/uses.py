"""What each account uses, and may use: its sessions and connections, from their request to their end.

    uses = Uses(store)                              # and run `uses.run()` as a task
    await uses.take(account, session)               # AccountLimitReached
    await uses.hold(account, session)               # it has a browser now, which counts in the fair queue
    await uses.give_back(account, session)

A use counts as long as a process prolongs its lease, so those of a killed process are over when that is. Any
process may go on with what another has taken (`adopt`), and any may end what a dead one has left
(`return_use`). What Redis has lost is counted again with the next renewal.
"""

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from remuda.base import clock
from remuda.base.errors import AccountLimitReached, Unavailable
from remuda.base.log import get_logger
from remuda.fleet.bell import bell_of
from remuda.fleet.line import TURN_ARGS
from remuda.fleet.liveness import RENEWALS_PER_TTL
from remuda.fleet.tasks import Tasks, repeat
from remuda.keyspace.accounts import ACCOUNT, METRICS_ACCESS
from remuda.keyspace.fleet import HELD, STARTS, USES
from remuda.keyspace.metering import QUOTA_USE, QUOTAS
from remuda.store import Store, load_script

log = get_logger(__name__)

_USES = load_script(
    __file__,
    "uses.lua",
    keys=[USES, HELD, STARTS, ACCOUNT, METRICS_ACCESS, QUOTAS, QUOTA_USE],
    args=["turns", "order", "held", "waits", "bell", "verb", "account", "lease", "services", "uses"],
    shared="turns.lua",
)

LEASE = 30.0
# So many at a time: thousands at once would keep Redis from everything else for too long.
RENEW_BATCH = 100
# An account at its limit may try again at once: nothing tells when one of its sessions ends.
TRY_AGAIN = 1.0
# And one with too much stored later: something has to be deleted first.
STORED_RETRY = 60.0

_Use = tuple[str, str]
"""Account and id."""


class Uses:
    """What accounts use in this process. Run `run()` as a task of the owner's, and `finish()` at its end."""

    def __init__(self, store: Store, *, lease: float = LEASE, services: Sequence[str] = ()) -> None:
        """Quotas of these `services` are kept to."""
        self._store = store
        self._services = services
        self._lease = lease
        self._open: dict[_Use, bool] = {}
        """Whether each has a browser."""
        self._owed: set[_Use] = set()
        """Given back while Redis was away, or while a renewal was under way that may have come later."""
        self._is_renewing = False
        self._tasks = Tasks()

    async def take(self, account: str, use: str) -> None:
        """Counts one more use of the account; AccountLimitReached where it may not have one more."""
        taking = self._tasks.spawn(self._run("take", account, [(use, False)]), name="take use")
        try:
            limit, number, wait_ms, *quota = await asyncio.shield(taking)
        except asyncio.CancelledError:
            # The client has gone, but the question is under way: what it still brings is given back.
            self.give_back_soon(account, use)
            raise
        if limit == "sessions_limit":
            raise AccountLimitReached(
                f"Account {account} has {number} sessions and connections, which is its limit",
                retry_after=TRY_AGAIN,
            )
        if limit == "rate_limit":
            raise AccountLimitReached(
                f"Account {account} has started {number} sessions and connections within a minute, which is "
                f"its limit; it may start the next in {wait_ms / 1000:.1f} s",
                retry_after=wait_ms / 1000,
            )
        if limit == "quota_limit":
            name, used, period, ends = quota
            raise quota_error(account, name, limit=number, used=used, period=period, frees_at=ends / 1000)
        self._open[account, use] = False

    async def hold(self, account: str, use: str) -> None:
        """Counts the use as one that has a browser. While Redis is away that is left to the next renewal."""
        self._open[account, use] = True
        await self._try(self._run("renew", account, [(use, True)]), account, use)

    async def adopt(self, account: str, use: str) -> None:
        """Keeps a use with a browser from now on that another process has taken."""
        await self.hold(account, use)

    def forget(self, account: str, use: str) -> None:
        """Leaves a use to the process that has adopted it."""
        self._open.pop((account, use), None)

    async def give_back(self, account: str, use: str) -> None:
        """Ends a use. Twice does no harm. While Redis is away that is left to the next renewal."""
        self._open.pop((account, use), None)
        if self._is_renewing:
            self._owed.add((account, use))
        if not await self._try(return_use(self._store, account, use), account, use):
            self._owed.add((account, use))

    def hold_soon(self, account: str, use: str) -> None:
        """Does the same without waiting for Redis."""
        self._tasks.spawn(self.hold(account, use), name="hold use")

    def give_back_soon(self, account: str, use: str) -> None:
        """Does the same without waiting for Redis."""
        self._tasks.spawn(self.give_back(account, use), name="give use back")

    async def finish(self, timeout: float | None = None) -> None:
        """Ends when everything that was given back has been, or cannot be, or the time is up."""
        await self._tasks.finish(timeout)

    async def run(self) -> None:
        """Prolongs what is open for ever, and at once when Redis comes back. Outlives any absence of it."""
        # This bell never rings: it only tells when Redis is back.
        with self._store.subscribe(bell_of("uses:returns")) as rings:
            every = self._lease / RENEWALS_PER_TTL
            await repeat(self.renew, every=every, failure="uses not prolonged", rings=rings)

    async def renew(self) -> None:
        """One round."""
        self._is_renewing = True
        try:
            renewals = [self._run("renew", *batch) for batch in _batches(self._open)]
            # Until the last is done, also if one fails.
            failures = await asyncio.gather(*renewals, return_exceptions=True)
            for failure in failures:
                if isinstance(failure, BaseException):
                    raise failure
        finally:
            self._is_renewing = False
            owed, self._owed = self._owed, set()
            for use in owed - self._open.keys():
                self.give_back_soon(*use)

    async def _run(self, verb: str, account: str, uses: Sequence[tuple[str, bool]]) -> Any:
        return await _run(self._store, verb, account, uses, lease=self._lease, services=self._services)

    async def _try(self, work: Awaitable[object], account: str, use: str) -> bool:
        try:
            await work
        except Unavailable as error:
            log.warning("use not written down", account=account, use=use, reason=error.message)
            return False
        return True


def _batches(uses: dict[_Use, bool]) -> Iterable[tuple[str, Sequence[tuple[str, bool]]]]:
    by_account: dict[str, list[tuple[str, bool]]] = {}
    for (account, use), is_held in uses.items():
        by_account.setdefault(account, []).append((use, is_held))
    for account, of_account in by_account.items():
        for start in range(0, len(of_account), RENEW_BATCH):
            yield account, of_account[start : start + RENEW_BATCH]


async def return_use(store: Store, account: str, use: str) -> None:
    """Ends a use, whichever process has taken it."""
    await _run(store, "give_back", account, [(use, True)])


async def _run(
    store: Store,
    verb: str,
    account: str,
    uses: Sequence[tuple[str, bool]],
    *,
    lease: float = LEASE,
    services: Sequence[str] = (),
) -> Any:
    keys = [
        *(USES(account), HELD(account), STARTS(account), ACCOUNT(account)),
        *(METRICS_ACCESS(), QUOTAS(account), QUOTA_USE(account)),
    ]
    quotas = f" {' '.join(services)} "
    listed = [part for use, is_held in uses for part in ("held" if is_held else "wanted", use)]
    return await store.run(_USES, keys=keys, args=[*TURN_ARGS, verb, account, lease, quotas, *listed])


def quota_error(
    account: str, name: str, *, limit: int, used: int, period: str, frees_at: float
) -> AccountLimitReached:
    """Says which quota is used up, and when it frees."""
    if period == "now":
        return AccountLimitReached(
            f"Account {account} has used {used} of {limit} {name}, which is its quota; it frees when some of "
            "it is deleted",
            retry_after=STORED_RETRY,
        )
    return AccountLimitReached(
        f"Account {account} has used {used} of {limit} {name} this {period}, which is its quota; it frees at "
        f"{clock.rfc3339(frees_at)[:19]}Z",
        retry_after=max(1.0, frees_at - clock.now()),
    )


@dataclass(frozen=True)
class AccountUsage:
    """What an account uses now."""

    uses: int
    """Sessions and connections."""
    held: int
    """Those of them that have a browser."""

    @property
    def waiting(self) -> int:
        """Those that wait for one."""
        return max(0, self.uses - self.held)


async def usage_of(store: Store, accounts: Collection[str]) -> dict[str, AccountUsage]:
    """What each of these accounts uses now."""
    # Redis' clock: those of several machines differ.
    seconds, microseconds = await store.send("TIME")
    now_ms = int(seconds) * 1000 + int(microseconds) // 1000
    counts = {
        account: [store.send("ZCOUNT", key(account), f"({now_ms}", "+inf") for key in (USES, HELD)]
        for account in accounts
    }
    return {account: AccountUsage(await uses, await held) for account, (uses, held) in counts.items()}
