"""Who a token belongs to, without asking Redis for each request.

What was looked up once is remembered, by its SHA-256. A bell and a version counter tell of changes: then all
that is remembered is read again. While Redis is away, what is remembered stays good.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Sequence
from itertools import islice
from math import inf

from msgspec import Struct

from remuda.accounts.model import EVERYTHING, Grant, may_be_token, token_id_of
from remuda.base import clock
from remuda.base.errors import Unauthorized
from remuda.fleet.bell import bell_of
from remuda.fleet.origin import Scope
from remuda.fleet.tasks import repeat
from remuda.keyspace.accounts import ACCESS_VERSION, LOGIN, TOKEN
from remuda.keyspace.key import Name
from remuda.store import Store, load_script

BELL = bell_of("access")
"""Rung whenever the version counter is counted up."""

KNOWN_WITHIN = 0.5
"""Seconds after which every gateway that reaches Redis knows of a change, also if the bell was lost."""
LOOK_EVERY = KNOWN_WITHIN * 0.8
PAUSE = 0.1
"""Between two readings of all that is remembered: an operator's script may change many tokens in a row."""
RENEW_EVERY = 60.0
"""Seconds after which the last use of a token is noted anew."""
TICK = 0.2
BATCH = 100
"""Tokens that are read in one step: Redis does nothing else meanwhile."""
MAX_KNOWN = 50_000
MAX_UNKNOWN = 4_096

WRONG = "This token is not valid: it is wrong, or it was revoked."
EXPIRED = "This token has expired."

_TEMPLATES = (Name(TOKEN.template()), Name(LOGIN.template()))
_RECALL = load_script(__file__, "recall.lua", keys=[], args=["token", "login", "digest"])
_NOTE_USES = load_script(__file__, "note_uses.lua", keys=[], args=["token", "login", "now", "digest"])


class _Known(Struct, gc=False):
    """A token that is there."""

    grant: Grant
    ends: float
    """Unix seconds until which it is good."""
    noted_in: int = -1
    """The period in which its last use was noted."""


class Access:
    """What tokens and login cookies grant. Run `run()` as a task of whatever calls `find`: nothing else tells
    it of changes."""

    def __init__(self, store: Store, *, is_on: bool) -> None:
        self.epoch: object = object()
        """Another object whenever a grant may have changed, and every minute, so that the last use becomes
        known. Whatever keeps a result of `find` keeps this with it, and asks again when it is another."""
        self._store = store
        self._is_on = is_on
        # By digest, not by token. Whatever the time of a look-up tells of the digests in here, an
        # attacker cannot choose a token by the first bits of its SHA-256, so it does not help to guess one.
        self._known: dict[bytes, _Known] = {}
        self._unknown: dict[bytes, None] = {}
        """Tokens that are not there: guessing one again costs Redis nothing. The oldest are dropped."""
        self._used: set[bytes] = set()
        self._scopes: dict[str, frozenset[Scope]] = {}
        self._accounts: dict[str, str] = {}
        self._seen: tuple[int, str | None] | None = None
        self._round = 0
        self._read_at = -inf
        self._period = 0
        self._next_end = inf

    def find(self, presented: str) -> Grant | Awaitable[Grant]:
        """What this token or cookie grants, at once if it is remembered; Unauthorized if that is nothing."""
        if not self._is_on:
            return EVERYTHING
        digest = hashlib.sha256(presented.encode(errors="replace")).digest()
        known = self._known.get(digest)
        if known is not None:
            return self._granted(digest, known)
        # What cannot be a token is not worth a question, nor a place in memory.
        if digest in self._unknown or not may_be_token(presented):
            raise Unauthorized(WRONG)
        return self._look_up(digest)

    def _granted(self, digest: bytes, known: _Known) -> Grant:
        if known.ends <= clock.now():
            raise Unauthorized(EXPIRED)
        if known.noted_in != self._period:
            known.noted_in = self._period
            self._used.add(digest)
        return known.grant

    async def _look_up(self, digest: bytes) -> Grant:
        while True:
            begun_in = self._round
            (known,) = await self._recall([digest])
            # If all was read anew meanwhile, this answer may be older than what that found.
            if begun_in == self._round:
                break
        if known is None:
            _make_room(self._unknown, MAX_UNKNOWN)
            self._unknown[digest] = None
            raise Unauthorized(WRONG)
        _make_room(self._known, MAX_KNOWN)
        self._remember(digest, known)
        return self._granted(digest, known)

    def _remember(self, digest: bytes, known: _Known) -> None:
        self._known[digest] = known
        self._next_end = min(self._next_end, known.ends)

    async def _recall(self, digests: Sequence[bytes]) -> list[_Known | None]:
        now = clock.now()
        names = [digest.hex() for digest in digests]
        found = await self._store.run(_RECALL, keys=[], args=[*_TEMPLATES, *names])
        return [
            None if each is None else self._read(name, *each, now=now)
            for name, each in zip(names, found, strict=True)
        ]

    def _read(
        self,
        shown: str,
        account: str,
        token: str,
        scopes: str,
        expires_at: str,
        digest: str,
        left_ms: int,
        *,
        now: float,
    ) -> _Known:
        ends = clock.parse_rfc3339(expires_at) if expires_at else inf
        if left_ms >= 0:
            ends = min(ends, now + left_ms / 1000)
        # Thousands of tokens have few accounts and fewer sets of scopes: each is kept once.
        shared = self._scopes.get(scopes)
        if shared is None:
            shared = self._scopes.setdefault(scopes, frozenset(map(Scope, scopes.split())))
        account = self._accounts.setdefault(account, account)
        login = shown if left_ms >= 0 else ""
        return _Known(Grant(account, token, token_id_of(digest), shared, login=login), ends)

    # Staying fresh

    async def run(self) -> None:
        """Keeps what is remembered as it is in Redis, until it is cancelled."""
        if not self._is_on:
            return
        with self._store.subscribe(BELL) as rings:
            async with asyncio.TaskGroup() as group:
                group.create_task(
                    repeat(self._look, every=LOOK_EVERY, rings=rings, failure="tokens not looked at"),
                    name="look for changed tokens",
                )
                # Apart from the other: tokens expire also while Redis is away.
                group.create_task(self._keep_time(), name="end expired tokens")

    async def _look(self) -> None:
        await asyncio.sleep(max(0.0, self._read_at + PAUSE - clock.monotonic()))
        version = await self._store.get(ACCESS_VERSION())
        # After a failover the counter may come by the same number again, with other tokens behind it.
        seen = (self._store.connection_number, version)
        if seen != self._seen or clock.monotonic() > self._read_at + RENEW_EVERY:
            await self._read_again()
            self._seen = seen
        if self._used:
            await self._note_uses()

    async def _read_again(self) -> None:
        self._round += 1
        self._unknown.clear()
        digests = iter(list(self._known))
        while batch := list(islice(digests, BATCH)):
            for digest, known in zip(batch, await self._recall(batch), strict=True):
                before = self._known.pop(digest, None)
                if known is not None and before is not None:
                    known.noted_in = before.noted_in
                    self._remember(digest, known)
        self.epoch = object()
        self._read_at = clock.monotonic()

    async def _note_uses(self) -> None:
        used, self._used = self._used, set()
        digests = iter(used)
        try:
            while batch := list(islice(digests, BATCH)):
                names = [digest.hex() for digest in batch]
                await self._store.run(_NOTE_USES, keys=[], args=[*_TEMPLATES, clock.rfc3339(), *names])
        except BaseException:
            self._used |= used
            raise

    async def _keep_time(self) -> None:
        renew_at = clock.monotonic() + RENEW_EVERY
        while True:
            await asyncio.sleep(TICK)
            now = clock.now()
            if self._next_end <= now:
                self._next_end = min(
                    (each.ends for each in self._known.values() if each.ends > now), default=inf
                )
                self.epoch = object()
            if clock.monotonic() >= renew_at:
                renew_at += RENEW_EVERY
                self._period += 1
                self.epoch = object()


def _make_room(memory: dict[bytes, _Known] | dict[bytes, None], size: int) -> None:
    """Drops the oldest entry of one that is full."""
    if len(memory) >= size:
        del memory[next(iter(memory))]
