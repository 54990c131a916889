"""A request's capabilities as they are kept: whole while a node needs them, then without what is large. Pure.

Extensions and profiles take megabytes. Once a session has its browser, nobody reads them again, but the
session is kept for a week. In their place stay their size and digest, by which two of them can be compared.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from remuda.base.errors import InvalidArgument
from remuda.grid.capabilities import Capabilities, as_request

LONG = 4096
"""Bytes of a string; longer ones are left out."""
LARGE = 65536
"""Bytes of a whole request as JSON; of larger ones every capability is left out that is not `SHORT`."""
SHORT = 256
MAX_REQUEST = 64 << 20
"""Bytes of a request's capability sets as JSON, each merged with `alwaysMatch`."""
_DEEP = 50


@dataclass(frozen=True)
class Requested:
    """Capability sets as JSON, in the form of a request."""

    whole: bytes
    short: bytes | None
    """What is kept of them in the long run; None when that is the whole."""


def encode_request(sets: Sequence[Capabilities]) -> Requested:
    """The capability sets, ready to be kept; InvalidArgument when they are too large."""
    left = MAX_REQUEST
    for each in sets:
        # Asked after each: a hundred sets share what stands in `alwaysMatch`, so few bytes can become many.
        left -= len(msgspec.json.encode(each))
        if left < 0:
            raise InvalidArgument(
                f"Each of the {len(sets)} capability sets includes 'alwaysMatch'; together they take more "
                f"than {MAX_REQUEST >> 20} MB"
            )
    whole = _encode(sets)
    return Requested(whole, _shorten(sets, whole))


def without_options(sets: Sequence[Capabilities]) -> list[Capabilities]:
    """The capability sets without long strings in their options: all that is needed to find a slot."""
    return [
        {
            name: _lighten(value, _DEEP) if isinstance(value, dict | list) else value
            for name, value in each.items()
        }
        for each in sets
    ]


def _shorten(sets: Sequence[Capabilities], whole: bytes) -> bytes | None:
    if len(whole) <= LONG:
        return None
    light = [_lighten(each, _DEEP) for each in sets]
    short = _encode(light)
    if len(short) > LARGE:
        light = [{name: _omit_unless_short(value) for name, value in each.items()} for each in light]
        short = _encode(light)
    if len(short) > LARGE:  # By the names of capabilities, or by the number of sets.
        short = _encode([_omitted(whole)])
    return None if short == whole else short


def _encode(sets: Sequence[Capabilities]) -> bytes:
    return msgspec.json.encode(as_request(sets))


def _lighten(value: Any, depth: int) -> Any:
    """The value without long strings."""
    if isinstance(value, str):
        text = value.encode(errors="surrogatepass") if len(value) > LONG // 4 else b""
        return _omitted(text) if len(text) > LONG else value
    if not isinstance(value, dict | list):
        return value
    if depth == 0:
        return _omitted(msgspec.json.encode(value))
    if isinstance(value, dict):
        return {name: _lighten(each, depth - 1) for name, each in value.items()}
    return [_lighten(each, depth - 1) for each in value]


def _omit_unless_short(value: Any) -> Any:
    encoded = msgspec.json.encode(value)
    return value if len(encoded) <= SHORT else _omitted(encoded)


def _omitted(content: bytes) -> dict[str, Any]:
    return {"omitted": {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}}
