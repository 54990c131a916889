"""What the relay itself refuses: faults of the bytes on the wire, before any router has a say."""

from remuda.base.errors import Refused

WEBSOCKET_VERSION = "13"


class MalformedRequest(Refused):
    """This is not a well-formed HTTP/1.1 request."""


class UnsupportedWebSocket(MalformedRequest):
    """A WebSocket needs the header Sec-WebSocket-Version: 13."""

    status = 426

    def headers(self) -> dict[str, str]:
        # RFC 6455 4.2.2 step 4: the answer names the versions that are spoken here.
        return {
            **super().headers(),
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": WEBSOCKET_VERSION,
        }


class TlsRequired(MalformedRequest):
    """This port speaks HTTPS only: begin the URL with https:// or wss://."""


class HeadTooLarge(Refused):
    """The request line and headers are larger than this server takes."""

    status = 431


class BodyTooLarge(Refused):
    """The request body is larger than this path takes."""

    status = 413


class RequestTimeout(Refused):
    """The request did not arrive in time."""

    status = 408


class MalformedResponse(Exception):
    """The upstream's answer is not HTTP/1.1; never shown to a client as it is."""
