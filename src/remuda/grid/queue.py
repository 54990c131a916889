"""The queue: sessions that wait for a slot, first come, first served among those who want the same.

Each capability class has a line of its own (fleet/line.py), which all managers share. A session's ticket is
its topic, so that the bell of the session reaches it in the line as well: whoever ends a session that
waits ends its wait.
"""

import hashlib
from collections.abc import Awaitable, Callable, Iterable

from remuda.base.ids import SessionId, SlotId
from remuda.fleet.line import Lines, who_waits
from remuda.grid.capabilities import Capabilities, class_of, describe_wishes
from remuda.grid.failures import CreationFailed, failure_of
from remuda.grid.model import State
from remuda.grid.registry import candidates, describe, live_offers, obstacles
from remuda.grid.sessions import Sessions, session_topic
from remuda.grid.slots import Slots, freed_bell
from remuda.keyspace.grid import SESSION_SLOT
from remuda.store import Store

_PREFIX = "grid:"


def line_of(wanted: Iterable[Capabilities]) -> str:
    """The line of those who want the same. A digest: what clients write becomes part of no key."""
    return _PREFIX + hashlib.blake2b(class_of(wanted).encode(), digest_size=16).hexdigest()


async def positions(store: Store) -> dict[str, int]:
    """The position of each session that waits for a slot, in its line."""
    topic = session_topic(SessionId(""))
    return {each.ticket.removeprefix(topic): each.position for each in await who_waits(store, _PREFIX)}


class Queue:
    """The queue, as a manager leads its sessions through it. Run `run()` as a task of the owner's."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sessions = Sessions(store)
        self._slots = Slots(store)
        self._lines = Lines(store)

    async def run(self) -> None:
        """Keeps the places of those who wait."""
        await self._lines.run()

    async def claim_slot(
        self,
        session: SessionId,
        wanted: list[Capabilities],
        write_down: Callable[[], Awaitable[None]],
        *,
        timeout: float,
    ) -> None:
        """Waits for the session's turn and claims a slot; CreationFailed when none can be had in time.

        Should Redis lose the session meanwhile, it is written down again: its client still waits.
        """
        await self._check_offers(wanted)

        async def claim() -> SlotId | None:
            # Claimed just when Redis went away, so that it could not say so.
            if held := await self._store.get(SESSION_SLOT(session)):
                return SlotId(held)
            # Looked up anew each time: who comes later serves those who wait, and the dead get nothing.
            return await self._slots.claim(session, candidates(await live_offers(self._store), wanted))

        async def check() -> None:
            state = await self._sessions.state(session)
            if state is State.TERMINATED:
                raise await failure_of(self._sessions, session)
            if state is None:
                await write_down()
                await self._sessions.log(session, "QUEUED")

        async with self._lines.wait(line_of(wanted), session_topic(session)) as place:
            await self._sessions.log(session, "QUEUED")
            slot = await place.served(freed_bell(), claim, check=check, timeout=timeout)
        if slot is None:
            where = f"it was number {place.position} in line"
            raise CreationFailed("QTIMEOUT", f"No browser became free within {timeout:g} s; {where}")

    async def _check_offers(self, wanted: list[Capabilities]) -> None:
        offers = await live_offers(self._store)
        if not candidates(offers, wanted):
            asked, offered = describe_wishes(wanted), describe(offers)
            hindered = "".join(f"; {each}" for each in await obstacles(self._store))
            raise CreationFailed(
                "QUNAVAILABLE", f"Nothing here can satisfy {asked}; on offer: {offered}{hindered}"
            )
