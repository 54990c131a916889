"""The end of the sessions of a token that was revoked, or of an account that was deleted."""

import asyncio
from functools import partial

from remuda.base.ids import SessionId
from remuda.base.log import get_logger
from remuda.fleet.sweep import BATCH
from remuda.grid.model import State
from remuda.grid.sessions import Sessions
from remuda.keyspace import grid
from remuda.store import Store

log = get_logger(__name__)


async def end_sessions(store: Store, account: str, token: str | None) -> int:
    """Ends the active sessions that were created with this token, or with any of the account; how many."""
    found = await store.send("SINTER", grid.SESSIONS_ACTIVE(), grid.SESSIONS_OF(account))
    active = [SessionId(each) for each in found]
    ended = 0
    for start in range(0, len(active), BATCH):
        batch = active[start : start + BATCH]
        tokens = await asyncio.gather(*(store.hget(grid.SESSION_ORIGIN(each), "token") for each in batch))
        doomed = [each for each, by in zip(batch, tokens, strict=True) if token in (None, by)]
        ended += sum(await asyncio.gather(*map(partial(_end, store, account, token), doomed)))
    if ended:
        log.info("sessions ended with their token", account=account, sessions=ended)
    return ended


async def _end(store: Store, account: str, token: str | None, session: SessionId) -> bool:
    sessions = Sessions(store)
    cause = f"The account {account} was deleted" if token is None else f"The token {token} was revoked"
    # The two documented codes for a session whose client wants no more.
    code = "CLOSED" if await sessions.state(session) is State.ALIVE else "CLEFT"
    return await sessions.move(session, State.TERMINATED, code=code, message=cause)
