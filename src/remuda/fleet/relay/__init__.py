"""Bytes from A to B: an HTTP/1.1 and WebSocket relay that knows no room and no Redis.

A request's way: `client` cuts it out of the byte stream, `head` and `body` say whether it is valid and where
it ends, `exchange` asks the owner's router and carries it out, `rewrite` makes the heads that go on,
`upstream` reads the answer, `answering` brings it back, and `tunnel` takes over after an upgrade. `handshake`
offers a WebSocket to one upstream after the other; `farewell` ends those that are left.
`bodies` bounds the memory for bodies that are held whole, and `surplus` answers clients for which hardly a
descriptor is left.
"""

from remuda.fleet.relay.address import Address
from remuda.fleet.relay.answering import CLIENT_LEFT
from remuda.fleet.relay.errors import BodyTooLarge, HeadTooLarge, MalformedRequest, RequestTimeout
from remuda.fleet.relay.head import CREDENTIAL_HEADER, Request, Shown
from remuda.fleet.relay.plan import (
    Answer,
    Caller,
    Dial,
    Forward,
    Guard,
    Handle,
    Limits,
    Observer,
    Plan,
    RenderError,
    Router,
    Stream,
    TlsFor,
    TunnelLimits,
    Unobserved,
)
from remuda.fleet.relay.relay import Relay

__all__ = [
    "CLIENT_LEFT",
    "CREDENTIAL_HEADER",
    "Address",
    "Answer",
    "BodyTooLarge",
    "Caller",
    "Dial",
    "Forward",
    "Guard",
    "Handle",
    "HeadTooLarge",
    "Limits",
    "MalformedRequest",
    "Observer",
    "Plan",
    "Relay",
    "RenderError",
    "Request",
    "RequestTimeout",
    "Router",
    "Shown",
    "Stream",
    "TlsFor",
    "TunnelLimits",
    "Unobserved",
]
