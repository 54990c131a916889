"""A web site on loopback to archive: pages that link to each other, as many as a test wants."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

LINKS = 4
"""On each page, to pages that no other page links to."""


class Site:
    """A site of so many pages. It counts requests by path, and holds answers back while it is told to."""

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self.hits: Counter[str] = Counter()
        self.agents: Counter[str] = Counter()
        self.logins: Counter[str] = Counter()
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.url = ""
        self.files: dict[str, web.Response | web.HTTPException] = {}
        """What is at other paths."""

    @property
    def paths(self) -> set[str]:
        """Every page's path."""
        return {"/", *(f"/p/{number}" for number in range(1, self.pages))}

    @property
    def served(self) -> int:
        """Requests for pages so far."""
        return sum(self.hits[path] for path in self.paths)

    async def answer(self, request: web.Request) -> web.Response:
        self.hits[request.path] += 1
        self.agents[request.headers.get("User-Agent", "")] += 1
        self.logins[request.headers.get("Authorization", "")] += 1
        if (found := self.files.get(request.path)) is not None:
            if isinstance(found, web.HTTPException):
                raise found
            return found
        if request.path not in self.paths:
            return web.Response(status=404, text="no such page")
        await self.is_open.wait()
        number = int(request.path.rpartition("/")[2] or 0)
        linked = range(number * LINKS + 1, min(number * LINKS + LINKS + 1, self.pages))
        links = "".join(f'<a href="/p/{each}">{each}</a>' for each in linked)
        return web.Response(text=f"<title>{number}</title>{links}", content_type="text/html")


@asynccontextmanager
async def serving_site(pages: int = 10) -> AsyncIterator[Site]:
    """A site that is served meanwhile."""
    site = Site(pages)
    app = web.Application()
    app.router.add_get("/{path:.*}", site.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    listener = web.TCPSite(runner, "127.0.0.1", 0)
    await listener.start()
    host, port = runner.addresses[0][:2]
    site.url = f"http://{host}:{port}/"
    try:
        yield site
    finally:
        site.is_open.set()
        await runner.cleanup()
