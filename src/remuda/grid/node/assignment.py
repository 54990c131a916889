"""What an orchestrator tells a node over its control socket: the session to hold, and as what. Pure."""

from dataclasses import dataclass

from remuda.base.ids import SessionId

LONGEST = 64
"""Bytes of an encoded assignment, at most."""


@dataclass(frozen=True)
class Assignment:
    """A session for a node.

    The choice among the client's capability sets travels along. The node must not choose again: it does not
    know the platform that the orchestrator has matched, nor what else was on offer.
    """

    session: SessionId
    chosen: int
    """Which of the requested capability sets the browser is started with; 0 is the first."""
    browser: int = 0
    """Which of the browsers of the node's driver that is; 0 is the one that the node was made for."""

    def encode(self) -> bytes:
        return f"{self.session} {self.chosen} {self.browser}".encode()

    @classmethod
    def decode(cls, message: bytes) -> "Assignment":
        session, chosen, browser = message.decode().split(" ")
        return cls(SessionId(session), int(chosen), int(browser))
