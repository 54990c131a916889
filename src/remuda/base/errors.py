"""Every error that Remuda raises on purpose, in one tree; the family tells the caller what to do.

    RemudaError
    ├── Refused               the request is wrong: change it
    │   ├── InvalidArgument
    │   ├── UnknownCommand
    │   ├── UnknownMethod
    │   ├── UpgradeRequired
    │   ├── Unauthorized
    │   ├── Forbidden
    │   │   ├── InternalPort
    │   │   └── ScopeMissing
    │   ├── SessionExists
    │   ├── AlreadyExists
    │   ├── InUse
    │   ├── VersionNotOffered
    │   ├── BrowserNotOffered
    │   └── Misconfigured     the operator's input is wrong
    ├── Unavailable           try again later; carries `retry_after`
    │   ├── StoreUnavailable
    │   │   └── StoreFull
    │   ├── UpstreamUnavailable
    │   │   ├── UpstreamLost
    │   │   └── UpstreamUntrusted
    │   ├── Overloaded
    │   ├── Draining
    │   ├── LineFull
    │   ├── AccountLimitReached
    │   ├── TooManyGuesses
    │   ├── SessionNotCreated
    │   ├── NoWorker
    │   └── DriverUnavailable
    │       └── DriverTimeout
    ├── Lost                  the thing is gone: give it up
    │   ├── SessionLost
    │   │   ├── SessionEnded
    │   │   └── SessionUnknown
    │   └── LeaseLost
    └── Broken                our bug

A class knows its HTTP status and its W3C WebDriver error code; its docstring is its default message.
"""

import math
import os
import re
import socket
from typing import Any, ClassVar


class RemudaError(Exception):
    """Something went wrong in Remuda."""

    status: ClassVar[int] = 500
    webdriver: ClassVar[str] = "unknown error"

    def __init__(self, message: str | None = None) -> None:
        self.message = message or (type(self).__doc__ or "").strip()
        super().__init__(self.message)

    @property
    def api_code(self) -> str:
        """Its name for programs: StoreUnavailable is store_unavailable."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

    def api_face(self) -> dict[str, Any]:
        """The JSON of an answer that tells of it."""
        return {"error": {"code": self.api_code, "message": self.message}}

    def webdriver_face(self) -> dict[str, Any]:
        """The same for WebDriver clients (W3C WebDriver 6.6)."""
        return {"value": {"error": self.webdriver, "message": self.message, "stacktrace": ""}}

    def headers(self) -> dict[str, str]:
        """The HTTP headers of an answer that tells of it."""
        return {"Cache-Control": "no-cache"}


class Refused(RemudaError):
    """The request is wrong."""

    status = 400
    webdriver = "invalid argument"


class InvalidArgument(Refused):
    """The request has an invalid value."""


class UnknownCommand(Refused):
    """This path does not exist."""

    status = 404
    webdriver = "unknown command"


class UnknownMethod(Refused):
    """This path does not accept this method."""

    status = 405
    webdriver = "unknown method"


class UpgradeRequired(Refused):
    """This path is for WebSockets only."""

    status = 426
    webdriver = "unknown method"

    def headers(self) -> dict[str, str]:
        # RFC 9110 15.5.22: a 426 says what to upgrade to.
        return {**super().headers(), "Upgrade": "websocket", "Connection": "Upgrade"}


class Unauthorized(Refused):
    """A token is needed: as `Authorization: Bearer`, as the password in the URL, or as `?token=`."""

    status = 401
    webdriver = "unknown error"
    challenge: ClassVar[str] = 'Bearer realm="remuda"'
    """How to show a token, for all clients; `fleet/challenge.py` knows which are offered more."""

    def headers(self) -> dict[str, str]:
        return {**super().headers(), "WWW-Authenticate": self.challenge}


class Forbidden(Refused):
    """Requests from this origin are not allowed."""

    status = 403
    webdriver = "unknown error"


class InternalPort(Forbidden):
    """This port is internal: it answers only processes of its own herd. Clients use the front door."""


class ScopeMissing(Forbidden):
    """This token does not have the scope that is needed here."""


class SessionExists(Refused):
    """There is, or was, a session with this id."""

    status = 409
    webdriver = "session not created"


class AlreadyExists(Refused):
    """There is already one of this name."""

    status = 409


class InUse(Refused):
    """It is still needed."""

    status = 409


class VersionNotOffered(Refused):
    """No worker supports the Playwright version of this client."""

    status = 428


class BrowserNotOffered(Refused):
    """No worker offers this browser, and nothing in this herd can start one."""

    status = 404


class Misconfigured(Refused):
    """An option or a setting has an invalid value."""


class Unavailable(RemudaError):
    """This is not possible right now."""

    status = 503
    webdriver = "unknown error"

    def __init__(self, message: str | None = None, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    def headers(self) -> dict[str, str]:
        return {**super().headers(), "Retry-After": str(math.ceil(self.retry_after))}


class StoreUnavailable(Unavailable):
    """Redis does not answer."""


class StoreFull(StoreUnavailable):
    """Redis has no memory left."""

    webdriver = "session not created"


class UpstreamUnavailable(Unavailable):
    """The process that serves this request cannot be reached."""

    status = 502


class UpstreamLost(UpstreamUnavailable):
    """The process that serves this request ended the connection before its answer was complete."""


class UpstreamUntrusted(UpstreamUnavailable):
    """The process that serves this request cannot be verified."""


class Overloaded(Unavailable):
    """This process is overloaded."""


class Draining(Unavailable):
    """This process is shutting down; try again."""


class LineFull(Unavailable):
    """The queue is full."""

    status = 429


class AccountLimitReached(Unavailable):
    """This account has reached its limit."""

    status = 429
    webdriver = "session not created"

    def webdriver_face(self) -> dict[str, Any]:
        # W3C WebDriver 6.6: an error may carry data. Many clients do not show their caller the headers.
        value = super().webdriver_face()["value"]
        return {"value": {**value, "data": {"retryAfter": math.ceil(self.retry_after)}}}


class TooManyGuesses(Unavailable):
    """Too many wrong tokens have come from this address."""

    status = 429


class SessionNotCreated(Unavailable):
    """No browser could be started for this request."""

    status = 500
    webdriver = "session not created"


class NoWorker(Unavailable):
    """No worker offers this browser."""


class DriverUnavailable(Unavailable):
    """The browser's driver cannot be started."""

    status = 500
    webdriver = "session not created"


class DriverTimeout(DriverUnavailable):
    """The browser's driver did not start in time."""


class Lost(RemudaError):
    """The requested object no longer exists."""

    status = 404


class SessionLost(Lost):
    """There is no such session."""

    webdriver = "invalid session id"


class SessionEnded(SessionLost):
    """This session has ended."""


class SessionUnknown(SessionLost):
    """Redis has no session with this id."""


class LeaseLost(Lost):
    """Another process holds this lease now."""

    status = 409


class Broken(RemudaError):
    """This is a bug in Remuda."""


def reason_of(error: OSError) -> str:
    """Why the system refused something, in its words, without the numbers and addresses that Python adds."""
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    # Of several addresses that were tried, Python only tells the errors as one text.
    numbers = (
        [error.errno] if error.errno else [int(each) for each in re.findall(r"\[Errno (\d+)\]", str(error))]
    )
    return ", ".join(dict.fromkeys(os.strerror(number) for number in numbers)) or str(error)
