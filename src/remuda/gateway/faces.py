"""How an error looks to who asked: W3C WebDriver JSON on WebDriver paths, a plain code elsewhere. Pure."""

import msgspec

from remuda.base.errors import (
    Draining,
    RemudaError,
    SessionEnded,
    SessionNotCreated,
    Unauthorized,
    UnknownMethod,
    UpstreamLost,
    UpstreamUnavailable,
)
from remuda.fleet.challenge import challenge_for
from remuda.fleet.relay import Answer, Request
from remuda.gateway.destinations import ends_session, is_session_root
from remuda.grid.failures import for_who_wanted_a_session
from remuda.grid.wire import answer_value, is_webdriver

MANAGER_LOST = "The process that was creating this session has ended. Ask for the session again."
SHORT_TROUBLES = (Draining, UpstreamUnavailable)


def render_error(request: Request | None, error: RemudaError) -> Answer:
    """The answer that tells the client of the error."""
    # Clients close the last window and then quit; ChromeDriver answers that with success, too.
    if isinstance(error, SessionEnded) and request and ends_session(request.method, request.target):
        return answer_value(None)
    if request and is_session_root(request.target.partition("?")[0]):
        error = for_who_wanted_a_session(error)
        if isinstance(error, SHORT_TROUBLES):
            # What WebDriver's clients understand, and what their own retries are made for.
            error = SessionNotCreated(MANAGER_LOST if isinstance(error, UpstreamLost) else error.message)
    is_for_webdriver = request is not None and is_webdriver(request.target)
    body = msgspec.json.encode(error.webdriver_face() if is_for_webdriver else error.api_face())
    headers = error.headers()
    # RFC 9110 15.5.6: a 405 says what is allowed.
    if isinstance(error, UnknownMethod) and request and is_session_root(request.target.partition("?")[0]):
        headers["Allow"] = "POST"
    if isinstance(error, Unauthorized) and request is not None:
        headers["WWW-Authenticate"] = challenge_for(request.header)
    return Answer(error.status, body, headers=tuple(headers.items()))
