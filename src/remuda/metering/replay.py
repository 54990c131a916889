"""Counts what could not be counted when it happened: events in the local spool, and those in Utapi's list.

Each keeps its own time slot and its id, and is taken away only after it was counted. So a replay that is
killed at any point is done again, and counts nothing twice. What can never be counted is set aside in
`remuda:metering:poison`, where an operator sees it.
"""

import fcntl
import hashlib
import os
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from remuda.base import clock
from remuda.base.errors import InvalidArgument, Refused
from remuda.base.log import get_logger
from remuda.keyspace.metering import METERING_METRICS, POISON, REPLAY, REPLAY_LOCK
from remuda.metering.owners import find_foreign
from remuda.metering.push import Event, Metering
from remuda.metering.s3 import S3
from remuda.metering.spool import SUFFIX, segments, sync_directory
from remuda.store import Store
from remuda.store.commands import Commands

log = get_logger(__name__)

BATCH = 500
KEPT_POISON = 10_000
LOCK_TTL = 900
"""Seconds for which Utapi's own replay stays away."""
WORK_FOR = 600.0
"""Seconds after which a replay of a list makes a pause, long before its lock ends."""
BEGUN = f".begun{SUFFIX}"
"""How a segment is called once the first of its events may have been counted."""
TOO_OLD = "it may have been counted, and that is longer ago than event ids are remembered"


class Poison(msgspec.Struct):
    """Something that cannot be counted."""

    at: str
    reason: str
    source: str
    element: str


def read_element(metering: Metering, element: str | bytes, *, service: str | None = None) -> Event:
    """The event of an element of Utapi's list or a line of a spool; InvalidArgument says what is wrong."""
    try:
        fields: Any = msgspec.json.decode(element)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(f"it is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InvalidArgument("it is not an object")
    action, params = fields.get("action"), fields.get("params")
    named = fields.get("service", service or S3.name)
    if not isinstance(action, str) or not isinstance(named, str) or not isinstance(params, dict):
        raise InvalidArgument("action, params or service is missing or wrong")
    if type(fields.get("timestamp")) is not int:
        raise InvalidArgument("timestamp is missing or wrong")
    raw = element.encode(errors="surrogateescape") if isinstance(element, str) else element
    # Utapi's request ids are the same for all that one request did, so the whole element is the id.
    event_id = str(fields.get("reqUid") or "")[:200] or "none"
    event = metering.check(action, params, service=named, event_id=event_id, timestamp=fields["timestamp"])
    digest = fields.get("digest")
    if isinstance(digest, str):
        try:
            known = bytes.fromhex(digest)[:10].ljust(10, b"\0")
            return replace(event, digest=known, scope=str(fields.get("scope", "")))
        except ValueError:
            raise InvalidArgument("digest is not hexadecimal") from None
    return replace(event, digest=hashlib.blake2b(raw, digest_size=10).digest())


def set_aside(commands: Commands, found: Iterable[Poison]) -> None:
    """Keeps what cannot be counted."""
    encoded = [msgspec.json.encode(each) for each in found]
    if encoded:
        commands.lpush(POISON(), *encoded)
        commands.send("LTRIM", POISON(), 0, KEPT_POISON - 1)
        commands.hincrby(METERING_METRICS(), "poison", len(encoded))


class Replay:
    """Replays the spool of this machine, and the lists in Redis. Its Metering has no spool of its own."""

    def __init__(self, store: Store, metering: Metering, directory: Path) -> None:
        self._store = store
        self._metering = metering
        self._directory = directory

    # The spool

    async def replay_spool(self) -> Counter[str]:
        """Counts the events of all segments that no process writes to any more."""
        done: Counter[str] = Counter()
        for path in segments(self._directory):
            try:
                file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(file).st_nlink:
                    done += await self._replay_segment(path, file)
            except BlockingIOError:
                continue  # It is being written, or another process replays it.
            finally:
                os.close(file)
        if done["replayed"]:
            log.info("spool replayed", **done)
        return done

    async def _replay_segment(self, path: Path, file: int) -> Counter[str]:
        size = os.fstat(file).st_size
        content = os.pread(file, size, 0)
        # A line without a break at its end was cut off by a kill. Its push was never answered.
        lines = content[: content.rfind(b"\n") + 1].splitlines()
        age = clock.now() - os.fstat(file).st_mtime
        is_forgotten = age > self._metering.rules.remember
        has_begun = path.name.endswith(BEGUN)
        if not has_begun:
            begun = path.with_name(path.name.removesuffix(SUFFIX) + BEGUN)
            path.rename(begun)
            path = begun
            os.utime(file, (time.time(), time.time()))
            sync_directory(self._directory)
        done: Counter[str] = Counter()
        for start in range(0, len(lines), BATCH):
            events, poison = self._read(lines[start : start + BATCH], source=f"spool {path.name}")
            if is_forgotten:
                doubtful = [each for each in events if has_begun or b'"sent":true' in each[0]]
                poison += [_poison(line, TOO_OLD, f"spool {path.name}") for line, _ in doubtful]
                events = [each for each in events if each not in doubtful]
            foreign = await find_foreign(self._store, [event for _, event in events])
            poison += [
                _poison(line, foreign[event.digest], f"spool {path.name}")
                for line, event in events
                if event.digest in foreign
            ]
            events = [each for each in events if each[1].digest not in foreign]
            done += await self._count([event for _, event in events], poison)
        path.unlink()
        sync_directory(self._directory)
        return done

    def _read(
        self, elements: Sequence[bytes], *, source: str, service: str | None = None
    ) -> tuple[list[tuple[bytes, Event]], list[Poison]]:
        events, poison = [], []
        for element in elements:
            try:
                events.append((element, read_element(self._metering, element, service=service)))
            except Refused as error:
                poison.append(_poison(element, error.message, source))
        return events, poison

    async def _count(self, events: Sequence[Event], poison: Sequence[Poison]) -> Counter[str]:
        pushed = await self._metering.push_all(events)
        async with self._store.transaction() as noting:
            set_aside(noting, poison)
            noting.hincrby(METERING_METRICS(), "replayed", pushed.accepted)
        return Counter(replayed=pushed.accepted, duplicates=pushed.duplicates, poison=len(poison))

    # Utapi's list

    async def replay_lists(self) -> Counter[str]:
        """Counts what Utapi has cached for each service, unless Utapi is about to."""
        done: Counter[str] = Counter()
        for service in self._metering.services:
            if not await self._store.llen(REPLAY(service)):
                continue
            lock = REPLAY_LOCK(service)
            if await self._store.send("SET", lock, "true", "NX", "EX", LOCK_TTL) is None:
                continue
            try:
                done += await self._replay_list(service)
            finally:
                await self._store.delete(lock)
        return done

    async def _replay_list(self, service: str) -> Counter[str]:
        done: Counter[str] = Counter()
        key, until = REPLAY(service), clock.monotonic() + WORK_FOR
        # The oldest are last.
        while clock.monotonic() < until and (elements := await self._store.lrange(key, -BATCH, -1)):
            raw = [element.encode(errors="surrogateescape") for element in reversed(elements)]
            events, poison = self._read(raw, source=f"list {key}", service=service)
            pushed = await self._metering.push_all([event for _, event in events])
            async with self._store.transaction() as taking:
                set_aside(taking, poison)
                # Not by their number: Utapi's lock has no owner. If this process was stopped until the lock
                # had ended, another one may have taken these, and others are the last now. As a rule each is
                # the last, so it is found at once.
                for element in reversed(elements):
                    taking.send("LREM", key, -1, element)
                taking.hincrby(METERING_METRICS(), "replayed", pushed.accepted)
            done += Counter(replayed=pushed.accepted, duplicates=pushed.duplicates, poison=len(poison))
        return done


def _poison(element: bytes, reason: str, source: str) -> Poison:
    return Poison(clock.rfc3339(), reason, source, element.decode(errors="replace")[:10_000])
