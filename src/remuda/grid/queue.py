"""The queue: sessions that wait for a slot. The accounts that wait for the same slots take turns.

Orchestrators that offer the same browsers have one line (fleet/line.py), which all managers share. A session
stands in the line of every kind of orchestrator that can serve it. So a slot goes to the account with the
fewest browsers among all that the slot can serve, whatever words they have used for what they want.

A session's ticket is its topic, so that the bell of the session reaches it in the line as well: the end of a
session that waits ends its wait.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import astuple

from remuda.base.ids import OrchestratorId, SessionId, SlotId
from remuda.fleet.bell import LOOK_EVERY
from remuda.fleet.line import LinePlace, Lines, who_waits
from remuda.fleet.tasks import repeat
from remuda.fleet.uses import Uses
from remuda.grid.capabilities import Capabilities, Offer, describe_wishes, first_match
from remuda.grid.failures import CreationFailed, failure_of
from remuda.grid.model import State
from remuda.grid.registry import Offers, describe, live_offers, obstacles
from remuda.grid.sessions import Sessions, session_topic
from remuda.grid.slots import Slots, freed_bell
from remuda.keyspace.grid import SESSION_SLOT
from remuda.store import Store

_PREFIX = "grid:"


def line_of(offered: Iterable[Offer]) -> str:
    """The line of the sessions that wait for an orchestrator that offers this."""
    kind = repr(sorted(astuple(offer) for offer in offered))
    return _PREFIX + hashlib.blake2b(kind.encode(), digest_size=16).hexdigest()


def lines_for(wanted: list[Capabilities], offers: Offers) -> dict[str, list[OrchestratorId]]:
    """The lines of a request, each with the orchestrators whose slots are given out in it."""
    kinds: dict[tuple[Offer, ...], list[OrchestratorId]] = {}
    for orchestrator, offered in offers.items():
        kinds.setdefault(tuple(offered), []).append(orchestrator)
    return {
        line_of(offered): orchestrators
        for offered, orchestrators in kinds.items()
        if first_match(wanted, offered) is not None
    }


async def positions(store: Store) -> dict[str, int]:
    """The position of each session that waits for a slot, in the line in which it is the best."""
    topic = session_topic(SessionId(""))
    found: dict[str, int] = {}
    for each in await who_waits(store, _PREFIX):
        session = each.ticket.removeprefix(topic)
        found[session] = min(each.position, found.get(session, each.position))
    return found


class Queue:
    """The queue, as a manager leads its sessions through it. Run `run()` as a task of the owner's."""

    def __init__(self, store: Store, uses: Uses) -> None:
        self._store = store
        self._uses = uses
        self._sessions = Sessions(store)
        self._slots = Slots(store)
        self._lines = Lines(store)
        self._offers: Offers = {}
        self._waiting: dict[LinePlace, tuple[list[Capabilities], Offers]] = {}
        """What each wants, and by which offers its lines were chosen."""

    async def run(self) -> None:
        """Keeps the places of waiting sessions, in the lines of all orchestrators that can serve them."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lines.run(), name="keep lines")
            follow = repeat(self._follow_offers, every=LOOK_EVERY, failure="offers not looked at")
            group.create_task(follow, name="follow offers")

    async def _follow_offers(self) -> None:
        """Moves waiting sessions to the lines in which they can be served now."""
        if not self._waiting:
            return
        offers = await live_offers(self._store)
        if offers != self._offers:
            self._offers = offers
        for place, (wanted, known) in list(self._waiting.items()):
            if known is self._offers or place not in self._waiting:
                continue
            if known != self._offers:
                # What nothing can serve any more stays where it is: the orchestrator may come back.
                place.move_to(lines_for(wanted, self._offers) or place.lines)
                # Thousands may wait, each with many sets to choose from.
                await asyncio.sleep(0)
            if place in self._waiting:
                self._waiting[place] = wanted, self._offers

    async def claim_slot(
        self,
        session: SessionId,
        wanted: list[Capabilities],
        write_down: Callable[[], Awaitable[None]],
        *,
        account: str,
        timeout: float,
    ) -> None:
        """Waits for the session's turn and claims a slot; CreationFailed when none can be had in time.

        Should Redis lose the session meanwhile, it is written down again: its client still waits.
        """
        offers = await live_offers(self._store)
        lines = lines_for(wanted, offers)
        if not lines:
            asked, offered = describe_wishes(wanted), describe(offers)
            hindered = "".join(f"; {each}" for each in await obstacles(self._store))
            raise CreationFailed("QUNAVAILABLE", f"No browser matches {asked}; on offer: {offered}{hindered}")

        async def claim() -> SlotId | None:
            # Claimed just when Redis went away, so that it could not say so.
            slot = SlotId(await self._store.get(SESSION_SLOT(session)) or "") or None
            if slot is None:
                # Looked up anew each time: orchestrators that came later count, and dead ones do not.
                serving = lines_for(wanted, await live_offers(self._store))
                candidates = [each for line in place.heads for each in serving.get(line, ())]
                slot = await self._slots.claim(session, candidates)
            if slot is not None:
                # While it is still the head: by the time that the next is called, it counts.
                await self._uses.hold(account, session)
            return slot

        async def check() -> None:
            state = await self._sessions.state(session)
            if state is State.TERMINATED:
                raise await failure_of(self._sessions, session)
            if state is None:
                await write_down()
                await self._sessions.log(session, "QUEUED")

        async with self._lines.wait(lines, session_topic(session), account=account) as place:
            self._waiting[place] = wanted, offers
            try:
                await self._sessions.log(session, "QUEUED")
                slot = await place.served(freed_bell(), claim, check=check, timeout=timeout)
            finally:
                del self._waiting[place]
        if slot is None:
            where = f"it was number {place.position} in the queue"
            raise CreationFailed("QTIMEOUT", f"No browser became free within {timeout:g} s; {where}")
