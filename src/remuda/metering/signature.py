"""AWS Signature V4, the server's side: whether the holder of a secret has signed a request. Pure.

The steps and their names are those of "Create a signed AWS API request" in the AWS documentation.
"""

import hashlib
import hmac
import re
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import quote, unquote_plus

from msgspec import Struct

ALGORITHM = "AWS4-HMAC-SHA256"
MAX_SKEW = 900.0
"""Seconds by which the clocks may differ."""
UNSIGNED = "UNSIGNED-PAYLOAD"

_authorization = re.compile(
    rf"{ALGORITHM}\s+Credential=(?P<key>[^/,\s]+)/(?P<date>\d{{8}})/(?P<region>[^/,\s]+)/(?P<service>[^/,\s]+)"
    r"/aws4_request\s*,\s*SignedHeaders=(?P<headers>[a-z0-9;._-]+)\s*,\s*Signature=(?P<signature>[0-9a-f]{64})"
).fullmatch


class Signed(Struct, frozen=True):
    """What an Authorization header says."""

    key_id: str
    date: str
    region: str
    service: str
    headers: tuple[str, ...]
    signature: str

    @property
    def scope(self) -> str:
        return f"{self.date}/{self.region}/{self.service}/aws4_request"


def read_authorization(value: str) -> Signed | None:
    """What the header says; None if it is malformed."""
    match = _authorization(value.strip())
    if match is None:
        return None
    headers = tuple(match["headers"].split(";"))
    return Signed(match["key"], match["date"], match["region"], match["service"], headers, match["signature"])


def signed_at(signed: Signed, header: Callable[[str], str | None]) -> float | None:
    """Unix seconds at which the request was signed; None if that is missing or contradicts its scope."""
    text = header("x-amz-date") or ""
    try:
        moment = datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None
    return moment.timestamp() if text[:8] == signed.date else None


def is_signed(
    signed: Signed,
    secret: str,
    *,
    method: str,
    target: str,
    header: Callable[[str], str | None],
    body: bytes,
) -> bool:
    """Whether the signature is right for this request, found out in constant time."""
    if "host" not in signed.headers:
        return False
    digest = hashlib.sha256(body).hexdigest()
    declared = header("x-amz-content-sha256")
    if declared not in (None, digest, UNSIGNED):
        return False
    path, _, query = target.partition("?")
    pairs = [(name, value) for name, _, value in (each.partition("=") for each in query.split("&") if each)]
    # The spec has names and values encoded anew, and S3 and Utapi read a plus as a space. AWS' own signer and
    # curl encode nothing: they expect the query to be in that form, and sign what they send.
    encoded = [(_encode(name), _encode(value)) for name, value in pairs]
    rest = [f"{name}:{' '.join((header(name) or '').split())}" for name in signed.headers]
    rest += ["", ";".join(signed.headers), declared or digest]
    key = f"AWS4{secret}".encode()
    for part in (signed.date, signed.region, signed.service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    for form in (encoded, pairs):
        canonical_query = "&".join(f"{name}={value}" for name, value in sorted(form))
        canonical = "\n".join((method, path, canonical_query, *rest))
        hashed = hashlib.sha256(canonical.encode()).hexdigest()
        to_sign = "\n".join((ALGORITHM, header("x-amz-date") or "", signed.scope, hashed))
        right = hmac.digest(key, to_sign.encode(), "sha256").hex()
        if hmac.compare_digest(right, signed.signature):
            return True
    return False


def _encode(text: str) -> str:
    return quote(unquote_plus(text), safe="-_.~")
