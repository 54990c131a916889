"""The ways to a Chromium's DevTools: to the browser, to a page of it, and to what it says of itself.

Their paths have secrets in them that only the browser tells.
"""

from typing import Any
from urllib.parse import urlsplit

import msgspec

from remuda.base.errors import DriverUnavailable, InvalidArgument, Lost, UnknownCommand
from remuda.fleet.relay import Address, Forward
from remuda.grid.node.driver import Driver

TIMEOUT = 10.0


class DevToolsWays:
    """Finds the ways to the DevTools of one session's browser; UnknownCommand if it has none."""

    def __init__(self, driver: Driver, address: Address | None) -> None:
        self._driver = driver
        self._address = address

    async def to_browser(self) -> Forward:
        """To the browser itself, which knows all pages."""
        told = await self._ask("/json/version")
        return self._forward(urlsplit(told["webSocketDebuggerUrl"]).path)

    async def to_page(self, target: str = "") -> Forward:
        """To the page with this id, or to the first one that there is."""
        pages = [each["id"] for each in await self._ask("/json/list") if each["type"] == "page"]
        if not pages or (target and target not in pages):
            raise Lost(f"The browser has no page {target[:100]!r}" if target else "The browser has no page")
        return self._forward(f"/devtools/page/{target or pages[0]}")

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
            raise InvalidArgument("DevTools are spoken to by WebSocket")
        return await (self.to_page(target) if kind == "page" else self.to_browser())

    def _forward(self, path: str) -> Forward:
        address = self._reachable()
        return Forward(address, path, host=str(address))

    async def _ask(self, path: str) -> Any:
        status, body = await self._driver.call("GET", path, to=self._reachable(), timeout=TIMEOUT)
        if status != 200:
            raise DriverUnavailable("The browser does not tell where its DevTools are")
        return msgspec.json.decode(body)

    def _reachable(self) -> Address:
        if self._address is None:
            raise UnknownCommand(f"{self._driver.browser.name} has no DevTools to connect to")
        return self._address
