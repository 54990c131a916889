"""What ends a session though its client does not ask for it: silence, the death of its driver or browser, and
another process that has ended it."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from remuda.base.errors import Unavailable
from remuda.base.ids import SessionId
from remuda.fleet.bell import wait_for
from remuda.grid.model import State
from remuda.grid.node.driver import Driver
from remuda.grid.node.ending import Ending, Fate, browser_ending, driver_ending, silent_ending
from remuda.grid.node.idle import Idleness
from remuda.grid.node.pulse import LAST_CHANCE, Question, is_answered, until_silent
from remuda.grid.sessions import Sessions, session_bell
from remuda.grid.timeouts import Timeouts, timeouts
from remuda.store import Store

LOOK_EVERY = 1.0
STATE_LOOK_EVERY = 10.0


class Watch:
    """Looks after one session, and decides its fate when it must end."""

    def __init__(
        self,
        store: Store,
        session: SessionId,
        fate: Fate,
        *,
        driver: Driver,
        browser_pid: int | None,
        idleness: Idleness,
        patience: float | None,
        questions: Mapping[str, Question],
        hang: float,
    ) -> None:
        self._store = store
        self._session = session
        self._fate = fate
        self._driver = driver
        self._browser_pid = browser_pid
        self._idleness = idleness
        self._patience = patience
        self._questions = questions
        self._hang = hang
        self._sessions = Sessions(store)
        self._timeouts = timeouts(store)

    async def run(self) -> None:
        """Watches everything until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_idleness(), name="watch idleness")
            group.create_task(self._watch_driver(), name="watch driver")
            group.create_task(self._watch_browser(), name="watch browser")
            for who, question in self._questions.items():
                group.create_task(self._watch_pulse(who, question), name=f"watch pulse of {who}")

    async def _watch_idleness(self) -> None:
        seen_at = self._idleness.seen_at
        setting = Timeouts().session_termination
        while True:
            await asyncio.sleep(LOOK_EVERY)
            # While Redis is away, what it said last holds: a node whose Redis never comes back must end too.
            with suppress(Unavailable):
                setting = (await self._timeouts.read()).session_termination
                if seen_at != self._idleness.seen_at:
                    seen_at = self._idleness.seen_at
                    await self._sessions.note_seen(self._session, seen_at)
            limit = setting if self._patience is None else self._patience
            if self._idleness.seconds() > limit:
                self._fate.decide(Ending("STIMEOUT", f"No command came for {limit:g} s"))
                return

    async def _watch_driver(self) -> None:
        status = await self._driver.ended()
        self._fate.decide(driver_ending(status, self._driver.tail()))

    async def _watch_pulse(self, who: str, question: Question) -> None:
        await until_silent(question, limit=self._hang)
        # A driver can hang because its browser does, and then that is the cause.
        browser = self._questions.get("browser")
        if who == "driver" and browser is not None and not await is_answered(browser, LAST_CHANCE):
            who = "browser"
        self._fate.decide(silent_ending(who, self._hang))

    async def _watch_browser(self) -> None:
        if self._browser_pid is None:
            return
        status = await self._driver.browser_ended(self._browser_pid)
        # It also ends when its client closes the session or the last window, and then that is the reason.
        async with self._fate.closing:
            self._fate.decide(browser_ending(status))


async def watch_state(store: Store, session: SessionId, fate: Fate) -> None:
    """Ends a session that another process has ended, such as a manager whose client left. Also while its
    browser starts: that may take minutes, and a slot waits."""
    sessions = Sessions(store)

    async def is_over() -> bool | None:
        try:
            return await sessions.state(session) in (State.TERMINATED, None) or None
        except Unavailable:
            return None

    await wait_for(store, session_bell(session), is_over, timeout=None, look_every=STATE_LOOK_EVERY)
    fate.decide(Ending())
