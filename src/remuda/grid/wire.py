"""WebDriver on the wire: its paths, and the JSON in which a value and an error are answered. Pure."""

import re
from typing import Any

import msgspec

from remuda.base.errors import InvalidArgument, RemudaError
from remuda.fleet.relay import Answer

SESSION = "/session"
HUB = "/wd/hub"
"""What Selenium 3 clients and many tools still put in front of every path."""

# W3C WebDriver 6.3, "send a response".
HEADERS = (("Cache-Control", "no-cache"),)
MAX_VALUES = 100_000
"""Values in the JSON of a request. Each takes up to thirty times its length of memory, and the reader holds
the interpreter for all of them: 64 MB of empty lists would be 1.6 GB, and 4 s."""

_webdriver = re.compile(rf"{HUB}/|/*{SESSION}(?![^/?])|/se/|/status(?![^?])").match


def is_webdriver(target: str) -> bool:
    """Whether this path is one of WebDriver clients, which understand errors in the W3C form only."""
    return _webdriver(target) is not None


def answer_value(value: Any, *, status: int = 200) -> Answer:
    """A successful answer."""
    return Answer(status, msgspec.json.encode({"value": value}), headers=HEADERS)


def answer_error(error: RemudaError) -> Answer:
    """The error as WebDriver clients expect it."""
    body = msgspec.json.encode(error.webdriver_face())
    return Answer(error.status, body, headers=tuple(error.headers().items()))


def read_json(body: bytes, name: str = "The body") -> Any:
    """The JSON of a request; InvalidArgument when it is none, or has too many values."""
    # Each value begins behind one of these. What large bodies carry, files in base64, has none of them.
    if sum(map(body.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise InvalidArgument(f"{name} has more than {MAX_VALUES} values")
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(f"{name} is not valid JSON: {error}") from error
