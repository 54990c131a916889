"""A collector of traces: an HTTP server that takes what OTLP sends, as JSON, and remembers the spans."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

UNITS = {"stringValue": str, "intValue": int, "boolValue": bool, "doubleValue": float}


@dataclass(frozen=True)
class Seen:
    """A span as the collector got it."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    state: str
    kind: int
    began: int
    ended: int
    attributes: dict[str, Any]
    error: str | None


@dataclass
class Collector:
    """What has arrived; `status` is what it answers, `hold` keeps it from answering at all."""

    url: str = ""
    spans: dict[str, Seen] = field(default_factory=dict)
    headers: list[dict[str, str]] = field(default_factory=list)
    status: int = 200
    hold: bool = False

    async def take(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/json"
        body = await request.json()
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        if self.hold:
            await asyncio.Event().wait()
        if self.status == 200:
            for span in (each for group in body["resourceSpans"] for each in read_group(group)):
                self.spans[span.id] = span
        return web.json_response({}, status=self.status)

    def trace(self, trace: str) -> list[Seen]:
        """The spans of a trace, in the order in which they began."""
        found = [span for span in self.spans.values() if span.trace == trace]
        return sorted(found, key=lambda span: span.began)


def read_group(group: dict[str, Any]) -> list[Seen]:
    service = read_attributes(group["resource"]["attributes"])["service.name"]
    return [read_span(service, span) for scope in group["scopeSpans"] for span in scope["spans"]]


def read_span(service: str, span: dict[str, Any]) -> Seen:
    return Seen(
        service=service,
        name=span["name"],
        trace=span["traceId"],
        id=span["spanId"],
        parent=span["parentSpanId"],
        state=span["traceState"],
        kind=span["kind"],
        began=int(span["startTimeUnixNano"]),
        ended=int(span["endTimeUnixNano"]),
        attributes=read_attributes(span["attributes"]),
        error=span["status"].get("message"),
    )


def read_attributes(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    return {each["key"]: UNITS[kind](value) for each in attributes for kind, value in each["value"].items()}


@asynccontextmanager
async def open_collector(path: str = "/v1/traces") -> AsyncIterator[Collector]:
    """A collector on a port of its own."""
    collector = Collector()
    app = web.Application()
    app.router.add_post(path, collector.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        collector.url = f"http://127.0.0.1:{port}"
        yield collector
    finally:
        await runner.cleanup()
