"""Nodes as processes of this machine, from a fork server; some are kept warm, with their driver running or
even their browser."""

import asyncio
import platform
import ssl
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from remuda.base.certificate import Certificate
from remuda.base.config import Config
from remuda.base.confinement import protection_of
from remuda.base.errors import DriverUnavailable, Misconfigured
from remuda.base.ids import SessionId
from remuda.base.log import get_logger
from remuda.base.processes import is_stopped
from remuda.fleet.browsers import BrowserConfig
from remuda.fleet.leftovers import clear_orphans
from remuda.fleet.permits import Allowance
from remuda.fleet.tasks import Tasks
from remuda.grid.browsers import Browser, survey_browsers
from remuda.grid.capabilities import Capabilities, Offer, first_match, is_match
from remuda.grid.node.assignment import Assignment
from remuda.grid.node.payload import herd_args, is_plain
from remuda.grid.node.recording.policy import Recording
from remuda.grid.orchestrator.nodes import ForkServer, NodeProcess, OwnNode
from remuda.grid.orchestrator.provisioner import Note, OnGone
from remuda.grid.room import GridConfig

log = get_logger(__name__)

# Nodes that wait with no more than their driver: those can serve any wish.
WARM_DRIVERS = 1
# A driver that does not start must not have us fork without a pause.
REPLACE_AFTER = 2.0
# Clients that wait for a browser go first; but if some always wait, no node would ever be warm.
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


def is_kin(one: Browser, other: Browser) -> bool:
    """Whether the same process can be the driver of both."""
    return (one.driver, one.family.driver_args) == (other.driver, other.family.driver_args)


def pick(warm: Iterable[OwnNode], browser: Browser, *, plain: bool) -> OwnNode | None:
    """The warm node to use; one whose browser runs already only for a plain wish."""
    able = [
        node
        for node in warm
        if node.can_start(browser) and (not node.with_browser or (plain and node.warm.is_set()))
    ]
    return max(able, key=lambda node: node.with_browser, default=None)


def next_to_warm(warm: Iterable[OwnNode], *, browsers: int) -> bool | None:
    """Whether the next node to warm gets a browser; None when all are there. Drivers are first: any wish
    can be granted with those, and they cost little."""
    has_browser = [node.with_browser for node in warm]
    if has_browser.count(False) < WARM_DRIVERS:
        return False
    return True if has_browser.count(True) < browsers else None


def outdated(warm: Iterable[OwnNode], current: ssl.SSLContext | None) -> list[OwnNode]:
    """The warm nodes that would show a certificate which has been replaced since they were started."""
    return [node for node in warm if node.tls is not current]


class LocalProvisioner:
    """Keeps a fork server and a few warm nodes."""

    kind = "local"

    def __init__(self, config: Config, *, redis_url: str, certificate: Certificate | None = None) -> None:
        self._config = config
        self._certificate = certificate
        self._forks = ForkServer(config, redis_url=redis_url)
        self._browsers: list[Browser] = []
        self._warm: list[OwnNode] = []
        self._nodes: set[NodeProcess] = set()
        self._is_refilling = False
        self._is_stopping = False
        self._tasks = Tasks()
        self._on_gone: OnGone | None = None

    # Its life

    async def start(self, on_gone: OnGone) -> list[Offer]:
        self._on_gone = on_gone
        found = await asyncio.to_thread(survey_browsers, self._config)
        if not found.browsers:
            problems = "; ".join(f"{each.subject}: {each.problem}" for each in found.findings)
            raise Misconfigured(f"There is no browser to run ({problems}). `remuda doctor` says what to do")
        self._browsers = list(found.browsers)
        await self._clear_orphans()
        self._forks.start()
        self._refill()
        return [_offer(browser) for browser in self._browsers]

    async def stop(self) -> None:
        self._is_stopping = True
        # A node that is being forked now would be told too late to end, and outlive us.
        await self._forks.settle()
        await asyncio.gather(*(node.end() for node in list(self._nodes)))
        await self._clear_orphans()
        self._tasks.cancel()
        await self._forks.stop()

    # Nodes

    async def provision(self, session: SessionId, wanted: list[dict[str, Any]], note: Note) -> None:
        match = choose(wanted, self._browsers)
        if match is None:
            raise DriverUnavailable("No browser of this machine satisfies the capabilities")
        chosen, browser = match
        if not await self._assign_warm(session, chosen, wanted[chosen], browser, note):
            node = await self._fork_node(browser, with_browser=False)
            await self._assign(node, Assignment(session, chosen), note)
        self._refill()

    async def _assign_warm(
        self, session: SessionId, chosen: int, wish: Capabilities, browser: Browser, note: Note
    ) -> bool:
        """Gives the session to a warm node, if there is one for it."""
        browsing = self._config[BrowserConfig]
        args = herd_args(self._config, browser, has_sandbox=protection_of(self._config).has_sandbox)
        plain = is_plain(
            wish,
            browser=browser,
            args=args,
            headless=browsing.headless,
            allowed=Allowance.of(browsing.allow_browser_args),
        )
        # All but a Chromium need a screen to be recorded, so they must be started for it.
        if not browser.family.is_chromium and Recording.of(self._config).video_of(wish) is not None:
            plain = False
        for old in outdated(self._warm, self._tls()):
            self._warm.remove(old)
            self._tasks.spawn(old.end(), name=f"end outdated node {old.pid}")
        while (node := pick(self._warm, browser, plain=plain)) is not None:
            self._warm.remove(node)
            # If this one has just died, the next is tried.
            with suppress(DriverUnavailable):
                await self._assign(node, Assignment(session, chosen, node.browsers.index(browser)), note)
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
            self._tasks.spawn(self._warm_nodes(), name="warm nodes")

    async def _warm_nodes(self) -> None:
        # One at a time: each that starts takes a core, and sessions have the first call on those.
        try:
            while True:
                await self._await_calm()
                with_browser = next_to_warm(self._warm, browsers=self._config[GridConfig].warm)
                # It is calm, too, when the nodes that start a browser are ended because we leave.
                if with_browser is None or self._is_stopping:
                    return
                node = await self._fork_node(self._browsers[0], with_browser=with_browser)
                self._warm.append(node)
                await node.warm.wait()
                if node.gone.is_set():
                    return  # `_watch` replaces it.
        except DriverUnavailable as error:
            log.warning("no warm node", reason=error.message)
            self._tasks.spawn(self._replace(), name="replace a warm node")
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

    async def _fork_node(self, browser: Browser, *, with_browser: bool) -> OwnNode:
        # One driver serves Chromium and its headless shell, so a warm one can serve sessions of either.
        kin = [each for each in self._browsers if each != browser and is_kin(each, browser)]
        # Before it is started: it has this certificate or a newer one.
        tls = self._tls()
        node = await self._forks.fork_node([browser, *kin], with_browser=with_browser)
        node.tls = tls
        self._look_after(node)
        return node

    def _tls(self) -> ssl.SSLContext | None:
        return None if self._certificate is None else self._certificate.context

    def _look_after(self, node: NodeProcess) -> None:
        self._nodes.add(node)
        self._tasks.spawn(self._watch(node), name=f"watch node {node.pid}")

    async def _watch(self, node: NodeProcess) -> None:
        await node.watch()
        self._nodes.discard(node)
        if node in self._warm:
            self._warm.remove(node)
            if not self._is_stopping:
                log.warning("warm node died", pid=node.pid)
                self._tasks.spawn(self._replace(), name="replace a warm node")
        await self._clear_orphans()
        if node.session is not None and self._on_gone is not None:
            self._on_gone(node.session, had_browser=node.had_browser)

    async def _clear_orphans(self) -> None:
        """Kills and removes what nodes leave that could not do it themselves."""
        await asyncio.to_thread(clear_orphans, protection_of(self._config).users)

    async def _replace(self) -> None:
        await asyncio.sleep(REPLACE_AFTER)
        self._refill()

    def has_node(self, session: SessionId) -> bool:
        return any(node.session == session for node in self._nodes)

    def find_stopped(self) -> list[SessionId]:
        return [node.session for node in self._nodes if node.session is not None and is_stopped(node.pid)]

    async def end(self, session: SessionId) -> None:
        for node in list(self._nodes):
            if node.session == session:
                await node.end()
                await self._clear_orphans()


def _offer(browser: Browser) -> Offer:
    # W3C WebDriver 7.1 names: "linux", "mac", "windows".
    system = platform.system().lower()
    return Offer(browser.name, browser.version, {"darwin": "mac"}.get(system, system))
