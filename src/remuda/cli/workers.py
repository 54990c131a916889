"""The Playwright workers of `remuda up`: each browser's are started when its first client waits.

An idle Chromium with its driver takes 210 MB, as much as all the rest of the herd, and a Firefox 560 MB and
four seconds of CPU. So nobody pays for what he does not use; and who does waits one second, once, or names
the browser in `playwright_eager`.
"""

import asyncio
from contextlib import AsyncExitStack
from functools import partial

from remuda.base.config import Config
from remuda.base.errors import Misconfigured, StoreUnavailable, Unavailable
from remuda.base.ids import RoleId, WorkerId, new_id
from remuda.base.log import get_logger
from remuda.cli.child import Child
from remuda.playwright.browsers import servable
from remuda.playwright.demand import keep_announcing, until_wanted
from remuda.playwright.model import OWN, Browser, browser_of, browsers_of
from remuda.playwright.registry import bury
from remuda.store import Store

log = get_logger(__name__)

BURY_AGAIN = 0.5
OPEN_AGAIN = 0.1


class Workers:
    """All workers of one herd."""

    def __init__(self, config: Config) -> None:
        self._config = config
        eager = browsers_of(config.playwright_eager)
        here = {browser_of(launch.browser) for launch in servable(config)}
        if missing := {browser.engine for browser in eager} - here:
            raise Misconfigured(f"Playwright finds no {', '.join(sorted(missing))} here: see `remuda doctor`")
        self._killed: list[tuple[Browser, WorkerId]] = []
        self._has_killed = asyncio.Event()
        self._eager = {browser.own for browser in eager} if config.playwright_isolation == OWN else eager
        # Of those of one's own, too: a client may ask for one whatever others do.
        kinds = sorted({*here, *(browser.own for browser in here)})
        self._by_browser = {browser: self._children_of(browser) for browser in kinds}
        self.announced = asyncio.Event()
        """Set when clients can wait for what is started here."""
        if not self.children:
            self.announced.set()

    def _children_of(self, browser: Browser) -> list[Child]:
        return [
            Child(
                ["worker"],
                self._config.environ(),
                args=["--browser", browser.engine, "--isolation", "own" if browser.is_own else "shared"],
                is_vital=False,
                # Where its port is given, the next must wait until it is free.
                hands_over=not self._config.playwright_port,
                on_death=partial(self._note_death, browser),
            )
            for _ in range(self._config.playwright_workers)
        ]

    def _note_death(self, browser: Browser, worker: RoleId) -> None:
        self._killed.append((browser, WorkerId(worker)))
        self._has_killed.set()

    async def _bury_killed(self, store: Store) -> None:
        """Clears away what killed workers have left in Redis, as soon as it answers; others would do it when
        their keys have expired."""
        while True:
            await self._has_killed.wait()
            self._has_killed.clear()
            while self._killed:
                try:
                    await bury(store, *self._killed[0])
                    self._killed.pop(0)
                except Unavailable as error:
                    log.warning("killed worker not cleared away yet", reason=error.message)
                    await asyncio.sleep(BURY_AGAIN)

    @property
    def children(self) -> list[Child]:
        return [child for children in self._by_browser.values() for child in children]

    async def keep_running(self, *, after: asyncio.Event) -> None:
        """Starts the workers of each browser when they are wanted, and keeps them running from then on."""
        async with AsyncExitStack() as stack:
            store = await self._open_store(stack)
            group = await stack.enter_async_context(asyncio.TaskGroup())
            group.create_task(self._bury_killed(store), name="clear away what killed workers leave")
            if self.children:
                group.create_task(
                    keep_announcing(store, new_id(), self._by_browser, self.announced),
                    name="announce what can be started",
                )
            # They have time: whoever comes earlier waits in line, and no WebDriver session is slowed down.
            await after.wait()
            for browser in self._by_browser:
                group.create_task(self._keep(store, browser), name=f"keep {browser}")

    async def _open_store(self, stack: AsyncExitStack) -> Store:
        """Redis, as soon as it answers. Should it never, the herd's other processes say so, and it ends."""
        config = self._config
        while True:
            try:
                store = Store(config.redis, prefix=config.prefix, name="up")
                return await stack.enter_async_context(store)
            except StoreUnavailable:
                await asyncio.sleep(OPEN_AGAIN)

    async def _keep(self, store: Store, browser: Browser) -> None:
        if browser not in self._eager:
            await until_wanted(store, browser)
        async with asyncio.TaskGroup() as group:
            for child in self._by_browser[browser]:
                group.create_task(child.keep_running(), name=f"keep {child}")

    def ask_to_leave(self) -> None:
        """Asks those that run to leave; they drain as long as the herd lets them."""
        for child in self.children:
            child.ask_to_leave()
