"""What Selenoid answers beside WebDriver and is no file of a node's: its health, and the logs of sessions."""

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from remuda import __version__
from remuda.base import clock
from remuda.grid.view import LogEntry
from remuda.web.herd import Herd

SUFFIX = ".log"


class Ping(Struct):
    """Since when the API runs, as a duration of Go's, and in which version."""

    uptime: str
    version: str


async def ping(herd: Herd, _request: Request) -> Ping:
    """`GET /ping`."""
    return Ping(f"{clock.monotonic() - herd.began:.3f}s", __version__)


async def get_log(herd: Herd, request: Request) -> Response:
    """`GET /logs/<session id>`, with or without `.log`: the session's log as lines."""
    entries = await herd.view.log(request.path_params["session"].removesuffix(SUFFIX))
    return Response(
        "".join(map(_line, entries)), headers={"Cache-Control": "no-cache"}, media_type="text/plain"
    )


def _line(entry: LogEntry) -> str:
    meta = f" {msgspec.json.encode(entry.meta).decode()}" if entry.meta else ""
    return f"{entry.time} {entry.level} {entry.component} {entry.code}: {entry.meaning}{meta}\n"
