"""A Chromium's DevTools: the ways to the browser, to a page of it and to what it says of itself, and a
connection of the node's own.

The paths have secrets in them that only the browser tells. What it says of itself is told with URLs of the
front door, in place of its own address.
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct

from remuda.accounts.tickets import Tickets
from remuda.base.errors import (
    DriverUnavailable,
    InvalidArgument,
    Lost,
    UnknownCommand,
    UnknownMethod,
    UpgradeRequired,
)
from remuda.base.ids import SessionId
from remuda.fleet.origin import Origin
from remuda.fleet.relay import Address, Answer, Forward, Plan, Request
from remuda.fleet.websocket import WebSocket, WebSocketClosed
from remuda.grid.node.driver import Driver

TIMEOUT = 10.0


class Said(Struct):
    """An event or the answer to a command; each part that it does not have is empty."""

    id: int = 0
    method: str = ""
    session: str = msgspec.field(name="sessionId", default="")
    params: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))
    result: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))


class DevTools:
    """A connection, open from `connect` to `close`: commands go out, whatever the browser says comes in."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._count = 0

    @classmethod
    async def connect(cls, address: Address, path: str, *, timeout: float) -> "DevTools":
        """A connection to a child's; Unavailable when the browser does not want one."""
        return cls(await WebSocket.open(address, path, to_child=True, timeout=timeout))

    def send(self, method: str, params: dict[str, Any], *, session: str = "") -> int:
        """Gives a command; the id that its answer will have. One to a browser that is gone is lost: `listen`
        tells of that."""
        self._count += 1
        order = {"id": self._count, "method": method, "params": params}
        text = msgspec.json.encode({**order, "sessionId": session} if session else order).decode()
        with suppress(WebSocketClosed):
            self._socket.send(text)
        return self._count

    async def listen(self) -> AsyncIterator[Said]:
        """What the browser says, until it is gone."""
        decoder = msgspec.json.Decoder(Said)
        async for text in self._socket:
            yield decoder.decode(text)

    def close(self) -> None:
        self._socket.close()


class DevToolsWays:
    """Finds the ways to the DevTools of one session's browser; UnknownCommand if it has none."""

    def __init__(self, driver: Driver, address: Address | None, session: SessionId, tickets: Tickets) -> None:
        self._driver = driver
        self._tickets = tickets
        self._address = address
        self._session = session

    async def to_browser(self) -> Forward:
        """To the browser itself, which knows all pages."""
        told = await self._ask("/json/version")
        return self._forward(urlsplit(told["webSocketDebuggerUrl"]).path)

    async def to_page(self, target: str = "") -> Forward:
        """To the page with this id, or to the first one that there is."""
        # Chromium has workers and frames under the same path.
        found = [each["id"] for each in await self._ask("/json/list") if target or each["type"] == "page"]
        if not found or (target and target not in found):
            raise Lost(f"The browser has no page {target[:100]!r}" if target else "The browser has no page")
        return self._forward(f"/devtools/page/{target or found[0]}")

    def to_protocol(self) -> Forward:
        """To the description of the protocol, which is JSON and no WebSocket."""
        return self._forward("/json/protocol")

    async def find(self, path: str, *, is_upgrade: bool) -> Forward:
        """The way that Selenoid and Moon have under this path, which begins behind `devtools`."""
        kind, _, target = path.strip("/").partition("/")
        if (kind, target) == ("json", "protocol"):
            return self.to_protocol()
        if kind not in ("", "browser", "page") or (target and kind != "page"):
            raise UnknownCommand(f"There are no DevTools at {path[:100]}")
        if not is_upgrade:
            raise InvalidArgument("DevTools need a WebSocket")
        return await (self.to_page(target) if kind == "page" else self.to_browser())

    async def serve(self, request: Request, path: str) -> Plan:
        """What Chromium has under this path, which begins behind `/se/cdp`: `/json/...`, `/devtools/...`."""
        kind, _, rest = path.strip("/").partition("/")
        if kind == "devtools":
            if not request.is_upgrade:
                raise UpgradeRequired("DevTools need a WebSocket.")
            what, _, target = rest.partition("/")
            # Chromium's own name for the browser is of no use to a client: there is only this one.
            return await self.find(what if what == "browser" else f"{what}/{target}", is_upgrade=True)
        if kind == "json":
            return await self._tell(request, rest or "list")
        raise UnknownCommand(f"There is nothing at {path[:100]}; DevTools paths are such as /json/list")

    async def _tell(self, request: Request, asked: str) -> Plan:
        what, _, target = asked.partition("/")
        is_known = what in (("close", "activate") if target else ("version", "list", "protocol", "new"))
        if not is_known or (target and not target.isalnum()):
            raise UnknownCommand(f"There is nothing at /json/{asked[:100]}")
        # As Chromium has it, which does not mind the method elsewhere.
        if what == "new" and request.method != "PUT":
            raise UnknownMethod(f"/json/new takes PUT, not {request.method}.")
        if what == "protocol":
            return self.to_protocol()
        query = request.target.partition("?")[2]
        path = f"/json/{asked}?{query}" if what == "new" and query else f"/json/{asked}"
        status, body = await self._driver.call(
            "PUT" if what == "new" else "GET", path, to=self._reachable(), timeout=TIMEOUT
        )
        if target:
            return Answer(status, body, "text/html; charset=UTF-8")
        if status != 200:
            raise DriverUnavailable(f"The browser answered {status} to /json/{what}")
        return Answer(200, msgspec.json.encode(self._translate(msgspec.json.decode(body), request)))

    def _translate(self, told: Any, request: Request) -> Any:
        """The same with URLs that work from the client's side."""
        if isinstance(told, list):
            return [self._translate(each, request) for each in told]
        origin = Origin.read(request.header, address=request.client)
        scheme = origin.websocket_scheme
        ours = f"{origin.host}/cdp/{self._session}"
        target = urlsplit(told.get("webSocketDebuggerUrl", "")).path
        # Of the browser itself there is but one way, whatever Chromium calls it.
        way = ours + target if target.startswith("/devtools/page/") else ours
        frontend = told.get("devtoolsFrontendUrl", "").replace(f"ws={self._reachable()}", f"{scheme}={ours}")
        # The WebSocket's URL is a part of this one's query.
        permit = quote(self._tickets.add_to("", self._session, origin), safe="")
        urls = {
            "webSocketDebuggerUrl": self._tickets.add_to(f"{scheme}://{way}", self._session, origin),
            "devtoolsFrontendUrl": frontend + permit,
        }
        return {**told, **{name: url for name, url in urls.items() if name in told}}

    def _forward(self, path: str) -> Forward:
        address = self._reachable()
        return Forward(address, path, host=str(address))

    async def _ask(self, path: str) -> Any:
        status, body = await self._driver.call("GET", path, to=self._reachable(), timeout=TIMEOUT)
        if status != 200:
            raise DriverUnavailable("The browser did not report the address of its DevTools")
        return msgspec.json.decode(body)

    def _reachable(self) -> Address:
        if self._address is None:
            raise UnknownCommand(f"{self._driver.browser.name} has no DevTools to connect to")
        return self._address
