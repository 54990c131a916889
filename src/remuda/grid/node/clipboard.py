"""The clipboard of a session's browser, read and written from outside, as Selenoid's `/clipboard` does.

A page of its own is opened for it, pasted into or copied from, and closed: what the client's pages may do
with the clipboard depends on where they come from, and their focus is none of our business.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from remuda.base.errors import InvalidArgument, Unavailable
from remuda.fleet.relay import Answer, Handle, Request
from remuda.grid.node.devtools import DevTools, DevToolsWays, Said
from remuda.grid.wire import HEADERS

TIMEOUT = 10.0
_AREA = "document.body.append(area = document.createElement('textarea')); area.value = {}; area.select()"


class Clipboard:
    """The clipboard of a Chromium; UnknownCommand for every other browser."""

    def __init__(self, ways: DevToolsWays) -> None:
        self._ways = ways
        self._turn = asyncio.Lock()

    def plans(self) -> dict[str, Handle]:
        """What becomes of each request, by its method."""
        return {"GET": Handle(self._get), "POST": Handle(self._post)}

    async def _get(self, _request: Request, _body: bytes) -> Answer:
        text = await self._edit("", "paste")
        return Answer(200, text.encode(), content_type="text/plain; charset=utf-8", headers=HEADERS)

    async def _post(self, _request: Request, body: bytes) -> Answer:
        try:
            await self._edit(body.decode(), "copy")
        except UnicodeDecodeError:
            raise InvalidArgument("The body must be the text for the clipboard, in UTF-8") from None
        return Answer(200, headers=HEADERS)

    async def _edit(self, text: str, command: str) -> str:
        """Has a text area with this text obey an editing command; what stands in it then."""
        try:
            async with self._turn, asyncio.timeout(TIMEOUT), self._scratch_page() as page:
                await page.call("Emulation.setFocusEmulationEnabled", {"enabled": True})
                await page.call("Runtime.evaluate", {"expression": _AREA.format(_literal(text))})
                await page.call("Input.dispatchKeyEvent", {"type": "keyDown", "commands": [command]})
                found = await page.call("Runtime.evaluate", {"expression": "area.value"})
                return str(found["result"]["value"])
        except (TimeoutError, KeyError) as error:
            raise Unavailable("The browser does not allow access to its clipboard") from error

    @asynccontextmanager
    async def _scratch_page(self) -> AsyncIterator["_Page"]:
        way = await self._ways.to_browser()
        tools = await DevTools.connect(way.address, way.target or "/", timeout=TIMEOUT)
        try:
            heard = tools.listen()
            browser = _Page(tools, heard)
            # In the background, or a browser with a window would bring it to the front.
            created = await browser.call("Target.createTarget", {"url": "about:blank", "background": True})
            target = {"targetId": created["targetId"]}
            try:
                attached = await browser.call("Target.attachToTarget", {**target, "flatten": True})
                yield _Page(tools, heard, attached["sessionId"])
            finally:
                await browser.call("Target.closeTarget", target)
        finally:
            tools.close()


class _Page:
    """A page, or the browser itself, that is given one command after another."""

    def __init__(self, tools: DevTools, heard: AsyncIterator[Said], session: str = "") -> None:
        self._tools = tools
        self._heard = heard
        self._session = session

    async def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """What the command gives; nothing when it is refused."""
        number = self._tools.send(method, params, session=self._session)
        async for said in self._heard:
            if said.id == number:
                return msgspec.json.decode(said.result, type=dict[str, Any])
        raise Unavailable("The browser closed its DevTools connection")


def _literal(text: str) -> str:
    """The text as JavaScript writes it; JSON is a part of that."""
    return msgspec.json.encode(text).decode()
