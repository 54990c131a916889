"""The audit log: who created, ended, read or changed what.

It is one stream in Redis, so that it is read in order. Each account has a number of entries in it, its admins
and its other clients apart: no client pushes out what others did.
"""

import hashlib
from typing import Any

import msgspec
from msgspec import Struct

from remuda.base import clock
from remuda.base.errors import RemudaError
from remuda.base.log import get_logger
from remuda.fleet.origin import Origin, Scope
from remuda.keyspace.accounts import AUDIT, AUDIT_ENTRIES, AUDIT_REPEATED
from remuda.store import Store, load_script
from remuda.store.commands import stream_entries

log = get_logger(__name__)

KEPT_OF_ADMINS = 10_000
KEPT_OF_CLIENTS = 1_000
"""Entries of an account: of its tokens with the scope `admin`, and of all its others."""
MAX_DETAILS = 10_000
"""Bytes; a URL fits, and a megabyte of patterns does not."""
REPEATED_WITHIN = 3600
"""Seconds after a login in which others are the same entry. Not for ever: the log shows on which days."""
ENTRY_ID = r"\d{1,19}-\d{1,19}"

_RECORD = load_script(
    __file__,
    "record.lua",
    keys=[AUDIT, AUDIT_ENTRIES, AUDIT_REPEATED],
    args=["keep", "within", "details", "field"],
)


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
        await self._record(origin, action, subject, details)

    async def record_routine(self, origin: Origin, action: str, subject: str) -> None:
        """Writes down what a client may do any number of times, such as a login. Within an hour that is one
        entry, which says how often."""
        await self._record(origin, action, subject, {}, within=REPEATED_WITHIN)

    async def _record(
        self, origin: Origin, action: str, subject: str, details: dict[str, Any], *, within: int = 0
    ) -> None:
        fields = {
            "at": clock.rfc3339(),
            "account": origin.account,
            "token": origin.token,
            "address": origin.address,
            "action": action,
            "subject": subject,
        }
        told = msgspec.json.encode(details)
        if len(told) > MAX_DETAILS:
            told = msgspec.json.encode({"omittedBytes": len(told)})
        by_admin = origin.may(Scope.ADMIN)
        repeated = "\n".join([value for name, value in fields.items() if name != "at"]).encode()
        try:
            await self._store.run(
                _RECORD,
                keys=[
                    AUDIT(),
                    AUDIT_ENTRIES("admins" if by_admin else "clients", origin.account),
                    AUDIT_REPEATED(hashlib.sha256(repeated).hexdigest()),
                ],
                args=[
                    KEPT_OF_ADMINS if by_admin else KEPT_OF_CLIENTS,
                    within,
                    told,
                    *(part for field in fields.items() for part in field),
                ],
            )
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
