"""How an error looks to who asked: W3C WebDriver JSON where WebDriver clients ask, a plain code elsewhere."""

import msgspec
from msgspec import Struct
from starlette.responses import Response

from remuda.base.errors import RemudaError
from remuda.grid.wire import HUB

_WEBDRIVER_PATHS = ("/se/", f"{HUB}/")


class Problem(Struct):
    """What went wrong: a fixed code for programs and a sentence for people."""

    code: str
    message: str


class ProblemAnswer(Struct):
    """The answer to a request that failed."""

    error: Problem


class WebdriverError(Struct):
    """What went wrong, as W3C WebDriver has it."""

    error: str
    message: str
    stacktrace: str


class WebdriverAnswer(Struct):
    """The answer to a WebDriver client's request that failed."""

    value: WebdriverError


def is_webdriver(path: str) -> bool:
    """Whether a WebDriver client asks, who understands errors in the W3C form only."""
    return path == "/status" or path.startswith(_WEBDRIVER_PATHS)


def answer_error(path: str, error: RemudaError) -> Response:
    """The answer to a request for this path that failed."""
    body = error.webdriver_face() if is_webdriver(path) else error.api_face()
    answer = json_response(body, status=error.status)
    answer.headers.update(error.headers())
    return answer


def json_response(body: object, *, status: int = 200) -> Response:
    """An answer in JSON. It tells of this moment, so nobody may keep it."""
    return Response(
        msgspec.json.encode(body),
        status,
        headers={"Cache-Control": "no-cache"},
        media_type="application/json; charset=utf-8",
    )
