"""Nodes as processes of this machine, born in a nursery; some are kept warm, with their driver running or
even their browser."""

import asyncio
import platform
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from remuda.base.config import Config
from remuda.base.confinement import protection_of
from remuda.base.errors import DriverUnavailable, Misconfigured
from remuda.base.ids import SessionId
from remuda.base.log import get_logger
from remuda.fleet.leftovers import clear_orphans
from remuda.fleet.permits import Allowance
from remuda.grid.browsers import Browser, survey_browsers
from remuda.grid.capabilities import Capabilities, Offer, first_match, is_match
from remuda.grid.node.assignment import Assignment
from remuda.grid.node.payload import herd_args, is_plain
from remuda.grid.node.recording import Recording
from remuda.grid.orchestrator.births import Births, NodeProcess, OwnNode
from remuda.grid.orchestrator.provisioner import Note, OnGone

log = get_logger(__name__)

# Nodes that wait with no more than their driver: those can serve any wish.
WARM_DRIVERS = 1
# A driver that does not start must not have us fork without a pause.
REPLACE_AFTER = 2.0
# Whoever waits for a browser goes first, but where somebody always does, nothing would ever be warm.
REFILL_PATIENCE = 2.0


def choose(wanted: list[Capabilities], browsers: Sequence[Browser]) -> tuple[int, Browser] | None:
    """Which of the wishes is granted, the first that a browser satisfies, and that browser."""
    # By name and version: a Chromium and its headless shell have the same version.
    by_offer = {_offer(browser): browser for browser in reversed(browsers)}
    match = first_match(wanted, [_offer(browser) for browser in browsers])
    if match is None:
        return None
    wish, found = match[0], by_offer[match[1]]
    kin = [browser for browser in browsers if browser.family.options == found.family.options]
    named = next((browser for browser in kin if _is_named(wish, browser)), found)
    return wanted.index(wish), named


def _is_named(wish: Capabilities, browser: Browser) -> bool:
    """Whether the client's `binary` is the path of this browser, and the rest of its wish fits too."""
    options = wish.get(browser.family.options)
    binary = options.get("binary") if isinstance(options, dict) else None
    return binary == str(browser.binary) and is_match({**wish, "browserName": browser.name}, _offer(browser))


def pick(warm: Iterable[OwnNode], browser: Browser, *, plain: bool) -> OwnNode | None:
    """The warm node to use; one whose browser runs already only for a plain wish."""
    able = [
        node
        for node in warm
        if node.browser == browser and (not node.with_browser or (plain and node.warm.is_set()))
    ]
    return max(able, key=lambda node: node.with_browser, default=None)


def next_to_warm(warm: Iterable[OwnNode], *, browsers: int) -> bool | None:
    """Whether the next node to warm gets a browser; None when all are there. Drivers are first: any wish
    can be granted with those, and they cost little."""
    has_browser = [node.with_browser for node in warm]
    if has_browser.count(False) < WARM_DRIVERS:
        return False
    return True if has_browser.count(True) < browsers else None


class LocalProvisioner:
    """Keeps a nursery and a few warm nodes."""

    kind = "local"

    def __init__(self, config: Config, *, redis_url: str) -> None:
        self._config = config
        self._births = Births(config, redis_url=redis_url)
        self._browsers: list[Browser] = []
        self._warm: list[OwnNode] = []
        self._nodes: set[NodeProcess] = set()
        self._is_refilling = False
        self._is_stopping = False
        self._watchers: set[asyncio.Task[None]] = set()
        self._on_gone: OnGone = lambda session: None

    # Its life

    async def start(self, on_gone: OnGone) -> list[Offer]:
        self._on_gone = on_gone
        found = await asyncio.to_thread(survey_browsers, self._config)
        if not found.browsers:
            problems = "; ".join(f"{each.subject}: {each.problem}" for each in found.findings)
            raise Misconfigured(f"There is no browser to run ({problems}). `remuda doctor` says what to do")
        self._browsers = list(found.browsers)
        await asyncio.to_thread(clear_orphans)
        self._births.start()
        self._refill()
        return [_offer(browser) for browser in self._browsers]

    async def stop(self) -> None:
        self._is_stopping = True
        # One that is being born would hear too late that nobody wants it, and outlive us.
        await self._births.settle()
        await asyncio.gather(*(node.end() for node in list(self._nodes)))
        for watcher in list(self._watchers):
            watcher.cancel()
        await self._births.stop()

    # Nodes

    async def provision(self, session: SessionId, wanted: list[dict[str, Any]], note: Note) -> None:
        match = choose(wanted, self._browsers)
        if match is None:
            raise DriverUnavailable("No browser of this machine satisfies the capabilities")
        chosen, browser = match
        assignment = Assignment(session, chosen)
        if not await self._assign_warm(assignment, wanted[chosen], browser, note):
            node = await self._bear(browser, with_browser=False)
            await self._assign(node, assignment, note)
        self._refill()

    async def _assign_warm(
        self, assignment: Assignment, wish: Capabilities, browser: Browser, note: Note
    ) -> bool:
        """Gives the session to a warm node, if there is one for it."""
        args = herd_args(self._config, browser, has_sandbox=protection_of(self._config).has_sandbox)
        plain = is_plain(
            wish,
            browser=browser,
            args=args,
            headless=self._config.headless,
            allowed=Allowance.of(self._config.allow_browser_args),
        )
        # All but a Chromium need a screen to be recorded, so they must be started for it.
        if not browser.family.is_chromium and Recording.of(self._config).video_of(wish) is not None:
            plain = False
        while (node := pick(self._warm, browser, plain=plain)) is not None:
            self._warm.remove(node)
            # One that has died just now is no reason to fail: the next is tried.
            with suppress(DriverUnavailable):
                await self._assign(node, assignment, note)
                return True
        return False

    async def _assign(self, node: OwnNode, assignment: Assignment, note: Note) -> None:
        try:
            await note(node.noted)
        except BaseException:
            self._warm.append(node)  # It has no session, and is as good as before.
            raise
        node.assign(assignment)

    async def adopt(self, session: SessionId, noted: str) -> bool:
        node = NodeProcess.find(session, noted)
        if node is None:
            return False
        self._look_after(node)
        return True

    def _refill(self) -> None:
        """Brings the warm nodes up to their number, in the background."""
        if not self._is_refilling and not self._is_stopping:
            self._is_refilling = True
            self._spawn(self._warm_nodes(), "warm nodes")

    async def _warm_nodes(self) -> None:
        # One at a time: each that starts takes a core, and sessions have the first call on those.
        try:
            while not self._is_stopping:
                await self._await_calm()
                with_browser = next_to_warm(self._warm, browsers=self._config.warm)
                if with_browser is None:
                    return
                node = await self._bear(self._browsers[0], with_browser=with_browser)
                self._warm.append(node)
                await node.warm.wait()
                if node.gone.is_set():
                    return  # Whoever watches it will have it replaced.
        except DriverUnavailable as error:
            log.warning("no warm node", reason=error.message)
            self._spawn(self._replace(), "replace a warm node")
        finally:
            self._is_refilling = False

    async def _await_calm(self) -> None:
        """Waits until no client waits for its browser, though not for ever."""
        with suppress(TimeoutError):
            async with asyncio.timeout(REFILL_PATIENCE):
                while starting := [
                    node for node in self._nodes if isinstance(node, OwnNode) and node.is_starting
                ]:
                    await starting[0].opened.wait()

    async def _bear(self, browser: Browser, *, with_browser: bool) -> OwnNode:
        node = await self._births.bear(browser, with_browser=with_browser)
        self._look_after(node)
        return node

    def _look_after(self, node: NodeProcess) -> None:
        self._nodes.add(node)
        self._spawn(self._watch(node), f"watch node {node.pid}")

    async def _watch(self, node: NodeProcess) -> None:
        await node.watch()
        self._nodes.discard(node)
        if node in self._warm:
            self._warm.remove(node)
            if not self._is_stopping:
                log.warning("warm node died", pid=node.pid)
                self._spawn(self._replace(), "replace a warm node")
        await asyncio.to_thread(clear_orphans)
        if node.session is not None:
            self._on_gone(node.session)

    async def _replace(self) -> None:
        await asyncio.sleep(REPLACE_AFTER)
        self._refill()

    async def end(self, session: SessionId) -> None:
        for node in list(self._nodes):
            if node.session == session:
                await node.end()

    def _spawn(self, work: Any, name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._watchers.add(task)
        task.add_done_callback(self._watchers.discard)


def _offer(browser: Browser) -> Offer:
    return Offer(browser.name, browser.version, _platform())


def _platform() -> str:
    # W3C WebDriver 7.1 names: "linux", "mac", "windows".
    return {"darwin": "mac"}.get(platform.system().lower(), platform.system().lower())
