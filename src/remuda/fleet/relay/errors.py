"""What the relay itself refuses: faults of the bytes on the wire, before any router has a say."""

from remuda.base.errors import Refused


class MalformedRequest(Refused):
    """This is not a well-formed HTTP/1.1 request."""


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
