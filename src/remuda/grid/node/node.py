"""A node's work: keep a driver warm, take one session, serve it, and end it properly."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from remuda.accounts.room import AccountsConfig
from remuda.accounts.tickets import Tickets
from remuda.base.confinement import Confinement, unconfined
from remuda.base.errors import DriverTimeout, DriverUnavailable, Refused, RemudaError, Unavailable
from remuda.base.hosts import LOOPBACK_ONLY, InternalHosts
from remuda.base.ids import NodeId, SessionId
from remuda.base.log import get_logger
from remuda.base.processes import running_since
from remuda.fleet.liveness import Heart
from remuda.fleet.permits import NOTHING_MORE, Allowance
from remuda.fleet.relay import Address
from remuda.fleet.secret import HerdSecret
from remuda.fleet.tasks import retry_until_redis_returns, run_until
from remuda.fleet.tracing import Span, get_tracer
from remuda.fleet.uses import Uses
from remuda.grid.browsers import Browser
from remuda.grid.browsers.families import CHROME, FIREFOX
from remuda.grid.capabilities import Capabilities
from remuda.grid.model import State
from remuda.grid.node.assignment import Assignment
from remuda.grid.node.commands import LAST_ANSWERS, NodeCommands
from remuda.grid.node.driver import Driver
from remuda.grid.node.ending import Ending, Fate
from remuda.grid.node.events import Events
from remuda.grid.node.extensions import PERMISSION, check_extension
from remuda.grid.node.files import Files
from remuda.grid.node.idle import Idleness
from remuda.grid.node.labelling import Labelling
from remuda.grid.node.payload import driver_request
from remuda.grid.node.profile import take_apart
from remuda.grid.node.recording.policy import Recording
from remuda.grid.node.recording.recorder import Recorder
from remuda.grid.node.watch import Watch, watch_state
from remuda.grid.options import Options, read_options, selenium_labels
from remuda.grid.sessions import Sessions, node_beat
from remuda.grid.sifting import Sifted, sift
from remuda.grid.slots import Slots
from remuda.grid.timeouts import timeouts
from remuda.store import Store

log = get_logger(__name__)
tracer = get_tracer("node")


class Node:
    """Holds one session."""

    def __init__(
        self,
        store: Store,
        name: NodeId,
        browser: Browser,
        *,
        kin: Sequence[Browser] = (),
        confinement: Confinement | None = None,
        recording: Recording | None = None,
        args: Sequence[str] = (),
        headless: bool = True,
        allowed: Allowance = NOTHING_MORE,
        hang: float = 0.0,
        hosts: InternalHosts = LOOPBACK_ONLY,
        ticket_lifetime: float = AccountsConfig.ticket_lifetime,
    ) -> None:
        self._store = store
        self._hang = hang
        self._recording = recording
        self._args = args
        self._headless = headless
        self._allowed = allowed
        self._hosts = hosts
        self._driver = Driver(
            name,
            browser,
            confinement or unconfined(),
            kin=kin,
            headless=headless,
            with_programs=allowed.covers(PERMISSION),
        )
        self._sessions = Sessions(store)
        self._timeouts = timeouts(store)
        self._heart = Heart(store)
        self._secret = HerdSecret(store)
        self._tickets = Tickets(self._secret, ticket_lifetime)
        self._idleness = Idleness()
        self._fate = Fate()
        self._warming: asyncio.Task[None]
        self._on_open: Callable[[], None]
        self._was_warm = False
        self._commands: NodeCommands | None = None
        self._recorder: Recorder | None = None
        self._session = SessionId("")
        self._account: str | None = None
        self._uses = Uses(store)
        self._using: asyncio.Task[None]
        self._chosen = 0
        self._patience: float | None = None
        self._files = Files(self._driver.directory, downloads=False)
        self._devtools: Address | None = None
        self._browser_pid: int | None = None

    def end(self, ending: Ending) -> None:
        """Has the session end for this reason, unless it already ends for another."""
        self._fate.decide(ending)

    # Its life

    def warm_up(
        self,
        *,
        with_browser: bool = False,
        on_warm: Callable[[], None] = lambda: None,
        on_open: Callable[[], None] = lambda: None,
    ) -> None:
        """Begins to start the driver, so that a session only has to wait for its browser, or for nothing at
        all if that is started too. Calls back once all is there, and once Redis knows of the browser."""
        self._on_open = on_open
        self._warming = asyncio.create_task(
            self._warm_up(with_browser=with_browser, on_warm=on_warm), name="warm up"
        )

    async def _warm_up(self, *, with_browser: bool, on_warm: Callable[[], None]) -> None:
        limits = await self._timeouts.read()
        await self._secret.read()
        await self._driver.start(timeout=limits.driver_startup)
        if with_browser:
            await self._driver.open_early(self._request({}), timeout=limits.node_startup)
        on_warm()

    async def cooled(self) -> None:
        """Waits until the driver has ended by itself, whereupon the node is good for nothing; raises what
        kept it from starting."""
        await asyncio.shield(self._warming)
        await self._driver.ended()

    @property
    def has_cooled(self) -> bool:
        """Whether it was warm, and its driver or browser has ended since."""
        is_warm = self._warming.done() and not self._warming.cancelled() and not self._warming.exception()
        return is_warm and self._driver.has_ended

    async def discard(self) -> None:
        """Ends a node that never got a session."""
        self._warming.cancel()
        await self._driver.stop()

    async def hold(self, assignment: Assignment) -> None:
        """The session's whole life here: opens it, serves it, and ends it."""
        session = self._session = assignment.session
        self._chosen = assignment.chosen
        self._driver.choose_browser(assignment.browser)
        self._was_warm = self._warming.done()
        beat = asyncio.create_task(self._heart.run(), name="heart")
        state = asyncio.create_task(watch_state(self._store, session, self._fate), name="watch state")
        watchers = [self._warming, state]
        self._using = asyncio.create_task(self._keep_use(), name="keep use")
        try:
            trace = await self._sessions.trace(session)
            with tracer.span("start node", trace, attributes=self._traits()) as span:
                # Given up half-way when the session is to end.
                await run_until(self._fate.decided(), self._open(span), name="open session")
            if self._fate.ending is None:
                watchers.append(asyncio.create_task(self._watch().run(), name="watch session"))
            with tracer.span("session", trace, attributes=self._traits()) as span:
                ending = await self._fate.decided()
                if ending.is_fault:
                    span.fail(ending.code, str(ending))
        except RemudaError as error:
            code = "DTIMEOUT" if isinstance(error, DriverTimeout) else "DFAILURE"
            told = error.webdriver if isinstance(error, Refused) else ""
            self.end(Ending(code, error.message, is_fault=True, error=told))
        finally:
            for task in (beat, *watchers):
                task.cancel()
            await self._close(self._fate.ending or Ending("TERM", is_fault=True))

    async def _keep_use(self) -> None:
        """Counts the session among what its account uses: its manager did so until it was created."""
        read = partial(self._sessions.account, self._session)
        known = {"session": self._session}
        self._account = await retry_until_redis_returns(read, failure="account not read", **known)
        if self._account is not None:
            await self._uses.adopt(self._account, self._session)
            await self._uses.run()

    def _watch(self) -> Watch:
        questions = (
            self._driver.questions(browser_pid=self._browser_pid, devtools=self._devtools)
            if self._hang
            else {}
        )
        return Watch(
            self._store,
            self._session,
            self._fate,
            driver=self._driver,
            browser_pid=self._browser_pid,
            idleness=self._idleness,
            patience=self._patience,
            questions=questions,
            hang=self._hang,
        )

    def _traits(self) -> dict[str, str | bool]:
        return {
            "remuda.session.id": self._session,
            "remuda.browser.name": self._driver.browser.name,
            "remuda.browser.version": self._driver.browser.version,
            "remuda.node.warm": self._was_warm,
        }

    async def _open(self, span: Span) -> None:
        session = self._session
        await self._sessions.boot(session, is_warm=self._was_warm)
        self._heart.keep(node_beat(session))
        with tracer.span("start driver", span.context):
            await self._warming
        await self._sessions.log(session, "DALIVE")
        limit = (await self._timeouts.read()).node_startup
        sifted = await self._sift(self._wanted(await self._sessions.requested(session)))
        wanted = sifted.wanted
        self._heed(read_options(wanted))
        if self._recording is not None:
            self._recorder = await self._recording.open(self._store, session, wanted, self._driver)
        with tracer.span("start browser", span.context):
            inner_id, actual = self._driver.take_early() or await self._driver.new_session(
                self._request(wanted), timeout=limit
            )
        self._devtools = _debugger_address(actual)
        self._browser_pid = self._driver.browser_pid(actual)
        told = {"remuda:ignored": sifted.ignored} if sifted.ignored else {}
        await self._listen(inner_id, {**actual, **selenium_labels(wanted), **told})

    async def _sift(self, wanted: Capabilities) -> Sifted:
        """What of the capabilities may pass. The manager has looked too, but this is what starts things."""
        sifted = sift(wanted, self._allowed)
        for extension in sifted.wanted.get(CHROME.options, {}).get("extensions") or []:
            await asyncio.to_thread(check_extension, extension, self._allowed, where=CHROME.options)
        options = sifted.wanted.get(FIREFOX.options, {})
        if options.get("profile") and not self._allowed.covers("profile"):
            profile, left_out = await asyncio.to_thread(take_apart, options["profile"], self._allowed)
            harmless = {**sifted.wanted, FIREFOX.options: {**options, "profile": profile}}
            sifted = Sifted(harmless, (*sifted.ignored, *left_out))
        if sifted.ignored:
            log.info("wishes ignored", session=self._session, ignored=sifted.ignored)
            await self._sessions.log(self._session, "IGNORED", message=", ".join(sifted.ignored))
        return sifted

    def _heed(self, options: Options) -> None:
        self._patience = options.idle
        if options.ends_with_websocket:
            self._idleness.tie_to_websocket(
                lambda: self.end(Ending("CLOSED", "Its WebSocket was closed")), keep=options.keep
            )

    def _request(self, wanted: Capabilities) -> dict[str, Any]:
        is_recorded = self._recorder is not None and not self._recorder.problem
        return driver_request(
            self._prepare(wanted),
            browser=self._driver.browser,
            args=self._args,
            headless=self._headless,
            screen=self._driver.display if is_recorded else None,
            launcher=self._driver.launcher,
        )

    def _wanted(self, sets: list[Capabilities] | None) -> Capabilities:
        """The capability set that the orchestrator has chosen."""
        if sets is None or self._chosen >= len(sets):
            raise DriverUnavailable(f"Redis has lost capability set {self._chosen} of the session")
        return sets[self._chosen]

    def _prepare(self, wanted: Capabilities) -> Capabilities:
        """Makes room for the session's files; what the browser is to be asked for."""
        self._files = Files(self._driver.directory, downloads=read_options(wanted).downloads)
        return self._files.wishes(wanted, browser=self._driver.browser.name)

    async def _listen(self, inner_id: str, actual: dict[str, Any]) -> None:
        await self._allow_downloads(inner_id)
        granted = self._files.grants(actual)
        if self._recorder is not None:
            await self._recorder.start(driver_session=inner_id, devtools=self._devtools)
            granted = self._recorder.grants(granted)
        self._commands = NodeCommands(
            self._session,
            self._driver,
            self._fate,
            guard=self._secret,
            tickets=self._tickets,
            driver_session=inner_id,
            devtools=self._devtools,
            idleness=self._idleness,
            files=self._files,
            labelling=Labelling(self._sessions, self._session),
            events=Events(self._sessions, self._session, self._recorder),
            recorder=self._recorder,
            allowed=self._allowed,
        )
        port = await self._commands.listen(self._hosts)
        self._idleness.restart()
        await self._sessions.open(
            self._session,
            upstream={"host": self._hosts.advertise, "port": port, "driverSessionID": inner_id},
            is_tls=self._hosts.certificate is not None,
            actual=granted,
        )
        self._on_open()

    async def _allow_downloads(self, inner_id: str) -> None:
        # Every other browser heeds its preferences.
        command = (
            self._files.devtools_command() if self._driver.browser.name == "chrome-headless-shell" else None
        )
        if command is None:
            return
        path = f"/session/{inner_id}/goog/cdp/execute"
        status, body = await self._driver.call("POST", path, command, timeout=10.0)
        if status != 200:
            raise DriverUnavailable(f"The download directory could not be set: {body[:200]!r}")

    async def _close(self, ending: Ending) -> None:
        """Writes the end down, then ends driver and browser, and only then gives the slot back."""
        try:
            await self._write_down(ending)
        except Unavailable as error:
            log.warning("end not written down", session=self._session, reason=error.message)
        if self._recorder is not None:
            await self._recorder.stop()
        if self._browser_pid is not None and running_since(self._browser_pid) is None:
            # Its driver still answers what is under way, such as BiDi's `session.end`: for that, ChromeDriver
            # kills the browser first.
            await self._idleness.until_done(LAST_ANSWERS)
        # The port stays open to the last: until it is closed, requests are told that the session has ended.
        await self._driver.stop()
        # First no longer kept, so that nothing counts it again.
        self._using.cancel()
        await Slots(self._store).release(self._session, account=self._account)
        if self._recorder is not None:
            await self._recorder.announce()
        if self._commands is not None:
            await self._commands.close()
        log.info("session ended", session=self._session, code=ending.code, message=ending.message)

    async def _write_down(self, ending: Ending) -> None:
        self._heart.forget(node_beat(self._session))
        if ending.code:
            await self._sessions.move(self._session, State.TERMINATED, code=ending.code, **ending.meta)
        if ending.is_fault and ending.code != "TERM":
            await self._sessions.log(self._session, "TERM", **ending.meta)
        await self._sessions.log(self._session, "HALT")


def _debugger_address(actual: dict[str, Any]) -> Address | None:
    """Where a Chromium listens for DevTools."""
    host, _, port = actual.get("goog:chromeOptions", {}).get("debuggerAddress", "").partition(":")
    return Address("127.0.0.1" if host == "localhost" else host, int(port)) if port else None
