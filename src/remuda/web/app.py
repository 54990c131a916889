"""The ASGI application: the table of routes, and one face for every error."""

from collections.abc import Awaitable, Callable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from remuda.base.errors import Broken, RemudaError, UnknownCommand, UnknownMethod
from remuda.grid.wire import HUB
from remuda.web.faces import answer_error
from remuda.web.herd import Herd
from remuda.web.route import Route

LONGEST_PATH = 200
"""Characters of a path that a refusal repeats."""


def build_app(herd: Herd, routes: Sequence[Route]) -> Starlette:
    """The application that serves these routes."""
    return Starlette(
        routes=_starlette_routes(herd, routes),
        exception_handlers={
            RemudaError: _on_remuda_error,
            HTTPException: _on_http_error,
            Exception: _on_bug,
        },
    )


def _starlette_routes(herd: Herd, routes: Sequence[Route]) -> list[StarletteRoute]:
    """One Starlette route a path, since Starlette refuses a wrong method at the first path that matches."""
    by_path: dict[str, dict[str, Route]] = {}
    for route in routes:
        by_path.setdefault(route.path, {})[route.method] = route
    return [
        StarletteRoute(prefix + path, _endpoint(herd, methods), methods=list(methods))
        for prefix in ("", HUB)
        for path, methods in by_path.items()
    ]


def _endpoint(herd: Herd, methods: dict[str, Route]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await methods[method].respond(herd, request)

    return endpoint


async def _on_remuda_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RemudaError)
    return answer_error(request.url.path, error)


async def _on_http_error(request: Request, error: Exception) -> Response:
    """Starlette's own refusals: no such path, or not with this method."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    shown = path[:LONGEST_PATH]
    if error.status_code == UnknownMethod.status:
        answer = answer_error(path, UnknownMethod(f"{shown} does not take {request.method}."))
        answer.headers.update(error.headers or {})  # RFC 9110 15.5.6: a 405 says what is allowed.
        return answer
    return answer_error(path, UnknownCommand(f"There is nothing at {shown}."))


async def _on_bug(request: Request, _error: Exception) -> Response:
    # Starlette raises it again after this, and uvicorn logs it with its trace.
    return answer_error(request.url.path, Broken())
