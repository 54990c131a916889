"""A node's HTTP face: what becomes of each request that comes for its session.

Commands go through byte for byte but for the session's id, which the driver knows under a name of its own.
"""

import asyncio
from collections.abc import Awaitable
from functools import partial

import msgspec

from remuda.accounts.tickets import Tickets
from remuda.base.errors import DriverUnavailable, InvalidArgument, SessionEnded, SessionLost, UnknownCommand
from remuda.base.hosts import InternalHosts
from remuda.base.ids import SessionId
from remuda.fleet.internal import serve_internally
from remuda.fleet.permits import NOTHING_MORE, Allowance
from remuda.fleet.permits.rules import shown, unlisted
from remuda.fleet.relay import Address, Answer, Forward, Guard, Handle, Limits, Plan, Relay, Request
from remuda.grid.node.clipboard import Clipboard
from remuda.grid.node.devtools import DevToolsWays
from remuda.grid.node.driver import Driver
from remuda.grid.node.ending import Ending, Fate
from remuda.grid.node.events import Events
from remuda.grid.node.extensions import check_extension
from remuda.grid.node.files import ONE_FILE, Files
from remuda.grid.node.idle import Idleness
from remuda.grid.node.labelling import Labelling
from remuda.grid.node.recording.recorder import Recorder
from remuda.grid.node.uploads import MAX_BODY
from remuda.grid.options import cookie_label, cookie_message, read_message
from remuda.grid.wire import HEADERS, answer_error, answer_value, read_json

LAST_ANSWERS = 1.0
AEROKUBE = "/aerokube/"
CDP = "/se/cdp"
SYSTEM_ACCESS = "remote-allow-system-access"


class NodeCommands:
    """Serves one session's requests, from `listen` to `close`."""

    def __init__(
        self,
        session: SessionId,
        driver: Driver,
        fate: Fate,
        *,
        guard: Guard,
        tickets: Tickets,
        driver_session: str,
        devtools: Address | None,
        idleness: Idleness,
        files: Files,
        labelling: Labelling,
        events: Events,
        recorder: Recorder | None,
        allowed: Allowance = NOTHING_MORE,
    ) -> None:
        self._session = session
        self._outer, self._inner = f"/session/{session}", f"/session/{driver_session}"
        self._driver = driver
        self._fate = fate
        self._devtools = DevToolsWays(driver, devtools, session, tickets)
        self._clipboard = Clipboard(self._devtools).plans()
        self._files = files
        self._labelling = labelling
        self._recorder = recorder
        self._allowed = allowed
        self._plans: dict[tuple[str, str], Plan] = {
            ("DELETE", ""): Handle(self._delete_session),
            ("DELETE", "/window"): Handle(self._delete_window),
            ("POST", "/cookie"): Handle(self._add_cookie),
            **files.plans(),
            ("POST", "/moz/context"): Handle(self._set_context),
            ("POST", "/moz/addon/install"): Handle(partial(self._install, "/moz/addon/install"), MAX_BODY),
            ("POST", "/webextension"): Handle(partial(self._install, "/webextension"), MAX_BODY),
            ("POST", "/remuda/message"): Handle(self._show_message),
            **labelling.plans(),
            **events.plans(),
        }
        if recorder is not None:
            self._plans[("POST", "/window")] = Handle(self._switch_window)
        self._relay = Relay(
            self._route,
            lambda _, error: answer_error(error),
            guard=guard,
            observer=idleness,
            to_child=True,
            # One large upload at a time: each node has its own process.
            limits=Limits(bodies=MAX_BODY),
        )
        self._server: asyncio.Server | None = None

    async def listen(self, hosts: InternalHosts) -> int:
        """Opens a port; its number."""
        self._server, port = await serve_internally(self._relay, hosts)
        return port

    async def close(self) -> None:
        """Closes the port, once those who still wait have their answer."""
        if self._server is not None:
            self._server.close()
        await self._relay.drain(LAST_ANSWERS)

    # Where a request goes

    def _route(self, request: Request) -> Plan | Awaitable[Plan]:
        outer, target = self._outer, request.target
        if not target.startswith(outer) or target[len(outer) : len(outer) + 1] not in ("", "/", "?"):
            return self._route_other(target)
        command = target[len(outer) :]
        # geckodriver takes a command with a slash behind it, too, so that must not lead around its plan.
        path = command.partition("?")[0].rstrip("/")
        if self._fate.ending is not None:
            if (request.method, path) == ("DELETE", ""):
                return answer_value(None)
            raise SessionEnded(f"This session ended at {self._fate.decided_at}: {self._fate.ending}")
        plan = self._plans.get((request.method, path))
        if plan is not None:
            return plan
        if request.method == "GET" and path.startswith(ONE_FILE):
            return self._files.fetch(request, path.removeprefix(ONE_FILE))
        if path.startswith(AEROKUBE):
            return self._route_aerokube(request, path)
        if path.startswith(CDP + "/"):
            return self._devtools.serve(request, path.removeprefix(CDP))
        if request.is_upgrade:
            return self._route_websocket(path)
        address = self._driver.address
        # ChromeDriver only talks to those who call it by a local name, and takes no chunks.
        path = self._driver.prefix + self._inner + command
        return Forward(address, path, host=str(address), unchunk=MAX_BODY)

    def _route_websocket(self, path: str) -> Plan | Awaitable[Plan]:
        if path == CDP:
            return self._devtools.to_browser()
        # The path of the specification, and Selenium Grid's name for it.
        if path not in ("", "/se/bidi"):
            raise UnknownCommand(f"There is no WebSocket at {path}; BiDi is at /session/{self._session}")
        # ChromeDriver has no prefix before the paths of its WebSockets.
        address = self._driver.bidi_address
        return Forward(address, self._inner, host=str(address))

    def _route_other(self, target: str) -> Answer:
        if target == "/status":
            return answer_value({"ready": False, "message": "holds a session", "session": self._session})
        raise SessionLost("This node holds another session")

    def _route_aerokube(self, request: Request, path: str) -> Plan | Awaitable[Plan]:
        """Moon's paths; Selenoid's are led here by the gateway."""
        what, _, rest = path.removeprefix(AEROKUBE).partition("/")
        if what == "devtools":
            return self._devtools.find(rest, is_upgrade=request.is_upgrade)
        if what == "download" and request.method == "GET":
            return self._files.fetch(request, rest)
        if what == "download" and request.method == "DELETE":
            return self._files.remove(rest)
        if (what, rest) == ("clipboard", "") and (plan := self._clipboard.get(request.method)) is not None:
            return plan
        raise UnknownCommand(f"There is no {request.method} at {path[:100]}")

    # Commands that are about more than the browser

    async def _delete_session(self, _request: Request, _body: bytes) -> Answer:
        async with self._fate.closing:
            try:
                if self._recorder is not None:
                    await self._recorder.leave()
                return await self._ask_driver("DELETE", self._inner)
            except DriverUnavailable:
                return answer_value(None)  # The client wants it gone, and gone it is.
            finally:
                self._fate.decide(Ending("CLOSED"))

    async def _delete_window(self, _request: Request, _body: bytes) -> Answer:
        async with self._fate.closing:
            answer = await self._ask_driver("DELETE", f"{self._inner}/window")
            # W3C WebDriver 11.2: closing the last window ends the session; the value is what stays open.
            if answer.status == 200 and msgspec.json.decode(answer.body).get("value") == []:
                self._fate.decide(Ending("CLOSED", "The last window was closed"))
            return answer

    async def _add_cookie(self, _request: Request, body: bytes) -> Answer:
        asked = read_json(body)
        if (labels := cookie_label(asked)) is not None:
            return await self._labelling.add(labels)
        if (message := cookie_message(asked)) is not None:
            return await self._say(message)
        return await self._ask_driver("POST", f"{self._inner}/cookie", body)

    async def _set_context(self, _request: Request, body: bytes) -> Answer:
        asked = read_json(body)
        context = asked.get("context") if isinstance(asked, dict) else None
        # Scripts there have the browser's own rights. Firefox itself refuses too, unless it was told not to.
        if context != "content" and not self._allowed.covers(SYSTEM_ACCESS):
            raise unlisted(f"The context {shown(context)}", SYSTEM_ACCESS)
        return await self._ask_driver("POST", f"{self._inner}/moz/context", body)

    async def _install(self, command: str, _request: Request, body: bytes) -> Answer:
        """Installs an extension that the client has sent: geckodriver's command calls it `addon`, the one of
        the WebExtensions group `value`."""
        asked = read_json(body)
        given = asked if isinstance(asked, dict) else {}
        if given.get("path") is not None:
            raise InvalidArgument(
                f"{shown(given['path'])} is a path of this machine; leave it out, and send the file itself"
            )
        for extension in (given.get("addon"), given.get("value")):
            if isinstance(extension, str):
                await asyncio.to_thread(check_extension, extension, self._allowed, where="the request")
        return await self._ask_driver("POST", f"{self._inner}{command}", body)

    async def _show_message(self, _request: Request, body: bytes) -> Answer:
        asked = read_json(body)
        return await self._say(
            read_message(asked.get("message") if isinstance(asked, dict) else None, "'message' in the body")
        )

    async def _say(self, message: str) -> Answer:
        # Without a video the message is dropped: a test should not fail for that.
        if self._recorder is not None:
            await self._recorder.say(message)
        return answer_value(None)

    async def _switch_window(self, _request: Request, body: bytes) -> Answer:
        answer = await self._ask_driver("POST", f"{self._inner}/window", body)
        if answer.status == 200 and self._recorder is not None:
            self._recorder.show(read_json(body)["handle"])
        return answer

    async def _ask_driver(self, method: str, path: str, body: bytes = b"") -> Answer:
        status, answered = await self._driver.call(method, path, body, timeout=60.0)
        return Answer(status, answered, headers=HEADERS)
