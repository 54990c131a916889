"""What Selenoid answers beside WebDriver: its health, and the logs and videos of sessions."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from remuda import __version__
from remuda.base import clock
from remuda.base.errors import Lost
from remuda.base.ids import SessionId, is_uuid
from remuda.fleet.origin import Scope
from remuda.fleet.route import Route, origin_of
from remuda.grid.http.api import Deleted, SessionApi
from remuda.grid.view import LogEntry, SessionsView
from remuda.store import Store

LOG_SUFFIX = ".log"
VIDEO_SUFFIX = ".mp4"


class Ping(Struct):
    """Since when the API runs, as a duration of Go's, and in which version."""

    uptime: str
    version: str


class Selenoid:
    """Serves what Selenoid's clients ask for."""

    def __init__(self, store: Store) -> None:
        self._view = SessionsView(store)
        self._api = SessionApi(store)
        self._began = clock.monotonic()

    async def ping(self, _request: Request) -> Ping:
        """`GET /ping`."""
        return Ping(f"{clock.monotonic() - self._began:.3f}s", __version__)

    async def get_log(self, request: Request) -> Response:
        """`GET /logs/<session id>`, with or without `.log`: the session's log as lines."""
        session = request.path_params["session"].removesuffix(LOG_SUFFIX)
        entries = await self._view.log(session, limited_to=origin_of(request).limited_to)
        return Response(
            "".join(map(_line, entries)), headers={"Cache-Control": "no-cache"}, media_type="text/plain"
        )

    async def get_video(self, request: Request) -> RedirectResponse:
        """`GET /video/<session id>.mp4`: redirects to the storage, which serves it in parts if wanted."""
        session = _session_of(request)
        detail = await self._view.session(session, limited_to=origin_of(request).limited_to)
        given = detail.actual_capabilities
        video = given.get("remuda:video") if isinstance(given, dict) else None
        if detail.video_url is None or not isinstance(video, dict):
            raise Lost(f"Session {session} has no video")
        return RedirectResponse(video["file"], 307, headers={"Cache-Control": "no-cache"})

    async def delete_video(self, request: Request) -> Deleted:
        """`DELETE /video/<session id>.mp4`."""
        return await self._api.delete_artifacts_of(_session_of(request), origin_of(request))

    def routes(self) -> Sequence[Route]:
        return [
            Route(
                "GET",
                "/video/{name}",
                "A session's video, at Selenoid's path",
                self.get_video,
                "video/mp4",
                scope=Scope.USE,
            ),
            Route(
                "DELETE",
                "/video/{name}",
                "Delete a session's video and other artifacts",
                self.delete_video,
                Deleted,
                scope=Scope.USE,
            ),
            Route(
                "GET",
                "/logs/{session}",
                "The log of a session as text, at Selenoid's path",
                self.get_log,
                "text/plain",
                scope=Scope.USE,
            ),
            Route("GET", "/ping", "Health check, at Selenoid's path", self.ping, Ping, scope=None),
        ]


def _line(entry: LogEntry) -> str:
    meta = f" {msgspec.json.encode(entry.meta).decode()}" if entry.meta else ""
    return f"{entry.time} {entry.level} {entry.component} {entry.code}: {entry.meaning}{meta}\n"


def _session_of(request: Request) -> SessionId:
    name: str = request.path_params["name"]
    session = name.removesuffix(VIDEO_SUFFIX)
    # Checked before it becomes part of a key.
    if session == name or not is_uuid(session):
        raise Lost(f"There is no video {name[:100]!r}; videos are named <session id>{VIDEO_SUFFIX}")
    return SessionId(session)
