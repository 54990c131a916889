"""The audit log: who created, ended, read or changed what. A stream in Redis that is trimmed to about 10,000
entries, so it shows the last weeks of a quiet herd and the last hours of a busy one."""

from typing import Any

import msgspec
from msgspec import Struct

from remuda.base import clock
from remuda.base.errors import RemudaError
from remuda.base.log import get_logger
from remuda.fleet.origin import Origin
from remuda.keyspace.accounts import AUDIT
from remuda.store import Store
from remuda.store.commands import stream_entries

log = get_logger(__name__)

KEPT_ENTRIES = 10_000
ENTRY_ID = r"\d{1,19}-\d{1,19}"


class AuditEntry(Struct):
    """Who did what to what, and when: the account and the name of the token, and the client's address."""

    id: str
    at: str
    account: str
    token: str
    address: str
    action: str
    subject: str
    details: dict[str, Any]


class Audit:
    """Writes and reads the log."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def record(self, origin: Origin, action: str, subject: str, /, **details: Any) -> None:
        """Writes down what was done. If Redis is away, the entry goes to this process' own log instead: what
        was done is done, and its caller is not told that it failed."""
        fields = {
            "at": clock.rfc3339(),
            "account": origin.account,
            "token": origin.token,
            "address": origin.address,
            "action": action,
            "subject": subject,
            "details": msgspec.json.encode(details).decode(),
        }
        try:
            await self._store.xadd(AUDIT(), fields, about=KEPT_ENTRIES)
        except RemudaError as error:
            log.warning(
                "audit entry not written",
                action=action,
                subject=subject,
                account=origin.account,
                # Not as `token`: the log hides what is called so, and this is only its name.
                by=origin.token,
                address=origin.address,
                details=details,
                reason=error.message,
            )

    async def newest(self, *, limit: int, before: str = "") -> list[AuditEntry]:
        """The newest entries before this one, or the newest of all; newest first."""
        return _entries(await self._store.xrevrange(AUDIT(), before=before, limit=limit))

    async def after(self, entry: str, *, limit: int) -> list[AuditEntry]:
        """The first entries after this one; newest first."""
        return _entries(await self._store.xrange(AUDIT(), after=entry, limit=limit))[::-1]


def _entries(reply: list[Any]) -> list[AuditEntry]:
    return [
        AuditEntry(id=number, **{**fields, "details": msgspec.json.decode(fields["details"])})
        for number, fields in stream_entries(reply)
    ]
