"""How an error looks to who asked: W3C WebDriver JSON on WebDriver paths, a plain code elsewhere. Pure."""

import msgspec

from remuda.base.errors import RemudaError, UnknownMethod
from remuda.fleet.relay import Answer, Request
from remuda.gateway.routes import is_session_root, is_webdriver


def render_error(request: Request | None, error: RemudaError) -> Answer:
    """The answer that tells the client of the error."""
    is_for_webdriver = request is not None and is_webdriver(request.target)
    body = msgspec.json.encode(error.webdriver_face() if is_for_webdriver else error.api_face())
    headers = error.headers()
    # RFC 9110 15.5.6: a 405 says what is allowed.
    if isinstance(error, UnknownMethod) and request and is_session_root(request.target.partition("?")[0]):
        headers["Allow"] = "POST"
    return Answer(error.status, body, headers=tuple(headers.items()))
