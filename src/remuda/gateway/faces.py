"""How an error looks to who asked: W3C WebDriver JSON on WebDriver paths, a plain code elsewhere. Pure."""

import json
import math
import re

from remuda.base.errors import RemudaError, Unavailable, UnknownMethod
from remuda.fleet.relay import Answer, Request
from remuda.gateway.routes import is_session_root, is_webdriver

Header = tuple[str, str]


def render_error(request: Request | None, error: RemudaError) -> Answer:
    """The answer that tells the client of the error."""
    body = _webdriver_body(error) if request and is_webdriver(request.target) else _plain_body(error)
    # W3C WebDriver 6.3, "send a response": the type with its charset, and no caching.
    headers = [("Cache-Control", "no-cache"), *_hints(request, error)]
    return Answer(error.status, json.dumps(body).encode(), headers=headers)


def code_of(error: RemudaError) -> str:
    """The error's name as the API spells it: UpstreamUnavailable is upstream_unavailable."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).lower()


def _webdriver_body(error: RemudaError) -> object:
    return {"value": {"error": error.webdriver, "message": error.message, "stacktrace": ""}}


def _plain_body(error: RemudaError) -> object:
    return {"error": {"code": code_of(error), "message": error.message}}


def _hints(request: Request | None, error: RemudaError) -> list[Header]:
    if isinstance(error, Unavailable):
        return [("Retry-After", str(math.ceil(error.retry_after)))]
    # RFC 9110 15.5.6: a 405 says what is allowed.
    if isinstance(error, UnknownMethod) and request and is_session_root(request.target.partition("?")[0]):
        return [("Allow", "POST")]
    return []
