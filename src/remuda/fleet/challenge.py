"""Which challenge a 401 has (RFC 9110 11.6.1): what it says on how to show a token. Pure."""

from collections.abc import Callable

from remuda.base.errors import Unauthorized

BASIC_TOO = f'Basic realm="remuda", {Unauthorized.challenge}'
"""Java's HttpClient, and so Selenium's, reads no challenge but the first, and answers to Basic only."""


def challenge_for(header: Callable[[str], str | None]) -> str:
    """The challenge for the client that sent this request.

    A browser answers Basic with a dialog of its own, over the page. What is typed there it keeps and sends
    with each request, also with one that a page of another site makes, as it never sends the cookie of a
    login. So it is not offered Basic, whatever makes it ask: the dashboard, a page of another site, a person.
    """
    is_from_browser = (
        # So the names of all browsers begin. They send them also by plain HTTP, where they send no Sec-Fetch
        # fields, and when a page loads a picture or a stream, which has no Origin.
        (header("user-agent") or "").startswith("Mozilla/")
        # And of those that their users have named otherwise.
        or header("sec-fetch-mode") is not None
        or header("origin") is not None
        or "text/html" in (header("accept") or "")
    )
    return Unauthorized.challenge if is_from_browser else BASIC_TOO
