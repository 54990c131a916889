"""Asks a running herd through its front door, for commands that look at one or change it."""

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from remuda.base.errors import InvalidArgument, Lost, Unavailable

TIMEOUT = 5.0


def ask_herd(url: str, path: str, *, method: str = "GET") -> Any:
    """What the herd's API answers; Unavailable says what to do when there is none, Lost what is not there."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise InvalidArgument(f"{url!r} is no front door; one looks like http://127.0.0.1:4444")
    connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=TIMEOUT)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        body = json.loads(answer.read())
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise Unavailable(f"No herd answers at {url} ({error}); start one with `remuda up`") from error
    finally:
        connection.close()
    if answer.status == 200:
        return body
    message = body.get("error", {}).get("message", answer.reason)
    if answer.status == 404:
        raise Lost(message)
    raise Unavailable(f"The herd at {url} says: {message}")
