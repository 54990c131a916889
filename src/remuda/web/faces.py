"""How an error looks to who asked: W3C WebDriver JSON where WebDriver clients ask, a plain code elsewhere."""

import math
import re

import msgspec
from msgspec import Struct
from starlette.responses import Response

from remuda.base.errors import RemudaError, Unavailable

_WEBDRIVER_PATHS = ("/se/", "/wd/hub/")


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


def problem_of(error: RemudaError) -> Problem:
    """The error as the API tells it: StoreUnavailable is store_unavailable."""
    return Problem(re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).lower(), error.message)


def answer_error(path: str, error: RemudaError) -> Response:
    """The answer to a request for this path that failed."""
    body: object = ProblemAnswer(problem_of(error))
    if is_webdriver(path):
        body = WebdriverAnswer(WebdriverError(error.webdriver, error.message, stacktrace=""))
    answer = json_response(body, status=error.status)
    if isinstance(error, Unavailable):
        answer.headers["Retry-After"] = str(math.ceil(error.retry_after))
    return answer


def json_response(body: object, *, status: int = 200) -> Response:
    """An answer in JSON. It tells of this moment, so nobody may keep it."""
    return Response(
        msgspec.json.encode(body),
        status,
        headers={"Cache-Control": "no-cache"},
        media_type="application/json; charset=utf-8",
    )
