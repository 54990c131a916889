"""A new session is given to its client only if this gateway reaches its node.

The connection that shows it is kept for the client's first command, so the look costs no time. A node that
cannot be reached, because it advertises a wrong address or a firewall is in between, would otherwise be
noticed by that command, when the client already has a session that it can neither use nor end.
"""

import msgspec

from remuda.accounts.model import EVERYTHING
from remuda.base.errors import RemudaError, SessionNotCreated, Unavailable
from remuda.base.ids import SessionId
from remuda.base.log import get_logger
from remuda.fleet.relay import Address
from remuda.fleet.relay.upstream import Pool
from remuda.gateway.directory import SessionDirectory

log = get_logger(__name__)


class _Created(msgspec.Struct):
    sessionId: str  # noqa: N815  # W3C WebDriver 8.1


class _Answer(msgspec.Struct):
    value: _Created


class Handover:
    """Looks at what managers answer to `POST /session`."""

    def __init__(self, directory: SessionDirectory) -> None:
        self._directory = directory

    async def check(self, answer: bytes, pool: Pool) -> None:
        """Returns if the session's node can be reached; else ends the session. SessionNotCreated says why."""
        session = SessionId(msgspec.json.decode(answer, type=_Answer).value.sessionId)
        address: Address | None = None
        try:
            address = await self._directory.look_again(session, EVERYTHING)
            pool.put(await pool.connect(address))
        except RemudaError as error:
            where = "its node" if address is None else f"its node at {address}"
            reason = f"The front door cannot reach {where}: {error.message}"
            log.warning("session not handed over", session=session, reason=reason)
            await self._end(session, reason)
            advice = (
                "" if address is None else " Check listen and advertise of that machine, and its firewall."
            )
            raise SessionNotCreated(reason + advice) from error
        except BaseException:  # The client has left.
            await self._end(session, "The client left before it had the session")
            raise

    async def _end(self, session: SessionId, reason: str) -> None:
        try:
            await self._directory.end_session(session, reason)
        except Unavailable as error:  # Its idle time-out ends it.
            log.warning("session not ended", session=session, reason=error.message)
