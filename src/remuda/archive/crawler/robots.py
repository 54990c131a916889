"""robots.txt (RFC 9309), for jobs that obey it."""

from typing import TYPE_CHECKING

from remuda.archive.crawler.decoding import decode_content
from remuda.archive.crawler.http import FetchedResponse

if TYPE_CHECKING:
    from protego import Protego

MAX_LENGTH = 500 << 10
"""Bytes of it that are read (RFC 9309 2.5)."""


class RobotRules:
    """What a host allows."""

    def __init__(self, response: FetchedResponse | None) -> None:
        """`response` is that of its robots.txt; None if there was none, and then everything is allowed: the
        pages will fail in the same way."""
        self._rules: Protego | None = None
        # RFC 9309 2.3.1.4: a server that fails may have rules that cannot be seen.
        self._is_closed = response is not None and response.status >= 500
        if response is not None and response.status == 200:
            import protego

            text = decode_content(
                response.read_payload(), response.fields.get("content-encoding", ""), limit=MAX_LENGTH
            )
            self._rules = protego.Protego.parse(text.decode("utf-8", "replace"))

    def allow(self, url: str, user_agent: str) -> bool:
        if self._rules is not None:
            return bool(self._rules.can_fetch(url, user_agent))
        return not self._is_closed
