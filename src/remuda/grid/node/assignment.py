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

    def encode(self) -> bytes:
        return f"{self.session} {self.chosen}".encode()

    @classmethod
    def decode(cls, message: bytes) -> "Assignment":
        session, _, chosen = message.decode().partition(" ")
        return cls(SessionId(session), int(chosen))
