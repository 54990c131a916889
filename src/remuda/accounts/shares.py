"""Shares: URLs under which anybody may read an artifact for a while, without a token.

    /shared/<expiry>.<names>.<signature>/<storage>/<owner>/<name>

What a share is good for is all in its URL and signed by the herd, so nothing is stored, and nothing has to be
looked up to refuse a wrong one. The price: a share cannot be taken back alone. It ends with its expiry or its
artifact. It stands in the path and not in a query, because a playlist names its parts by relative URLs, and
players keep the path before them but no query.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Sequence
from urllib.parse import quote

from remuda.base import clock
from remuda.base.errors import Lost
from remuda.fleet.secret import HerdSecret

PREFIX = "/shared/"
DEFAULT_LIFETIME = 7 * 86400.0
LONGEST_LIFETIME = 90 * 86400.0

_PURPOSE = "share"
_segment = re.compile(r"(\d{1,12})\.([A-Za-z0-9_-]{1,4000})\.([0-9a-f]{64})").fullmatch


class Shares:
    """Makes shares, and tells whether one is good."""

    def __init__(self, secret: HerdSecret) -> None:
        self._secret = secret

    def make(self, storage: str, owner: str, names: Sequence[str], *, until: float) -> str:
        """The path of the first of these artifacts, good for all of them until then.

        A name that ends with a slash stands for all that begin so: no artifact has a slash in its name.
        """
        # No name has a line break either.
        covered = urlsafe_b64encode("\n".join(names).encode()).decode().rstrip("=")
        expiry = str(int(until))
        signature = self._secret.sign(_PURPOSE, _signed(expiry, covered, storage, owner))
        return f"{PREFIX}{expiry}.{covered}.{signature}/{storage}/{owner}/{quote(names[0], safe='')}"

    def check(self, segment: str, storage: str, owner: str, name: str) -> None:
        """Lost unless this part of a path shares the artifact now."""
        read = _segment(segment)
        if read is None:
            raise Lost("There is no such artifact")
        expiry, covered, signature = read.groups()
        # Before anything else: what is not signed is not worth a look, and tells nothing.
        if not self._secret.has_signed(_PURPOSE, _signed(expiry, covered, storage, owner), signature):
            raise Lost("There is no such artifact")
        if int(expiry) <= clock.now():
            raise Lost(f"This share has expired at {clock.rfc3339(int(expiry))}")
        if not _covers(covered, name):
            raise Lost("There is no such artifact")


def _signed(expiry: str, covered: str, storage: str, owner: str) -> str:
    return "\n".join((expiry, covered, storage, owner))


def _covers(covered: str, name: str) -> bool:
    try:
        names = urlsafe_b64decode(covered + "=" * (-len(covered) % 4)).decode().split("\n")
    except (NotBase64, UnicodeDecodeError):
        return False
    return any(name.startswith(each[:-1]) if each.endswith("/") else name == each for each in names)
