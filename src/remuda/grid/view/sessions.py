"""Sessions as a person wants to see them."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from remuda.base import clock
from remuda.base.errors import SessionLost
from remuda.base.ids import SessionId, is_uuid
from remuda.grid.capabilities import for_viewer, sets_of
from remuda.grid.model import KEPT_LOG_ENTRIES, State, state_of
from remuda.grid.queue import positions
from remuda.grid.sessions import Sessions, read_meta
from remuda.grid.view.mask import clip, mask
from remuda.grid.view.model import (
    ActiveSessions,
    BrowserView,
    ClientView,
    LogEntry,
    SessionDetail,
    SessionPage,
    SessionView,
)
from remuda.keyspace import grid
from remuda.keyspace.log_codes import BY_CODE
from remuda.store import Store
from remuda.store.commands import stream_entries

MAX_SESSIONS = 500
"""Sessions shown in full; beyond that they are only counted."""
MAX_CAPABILITIES = 256 << 10
"""Bytes of capabilities worth reading: they may carry whole extensions, and a list reads many of them."""
MAX_SETS = 10
"""Capability sets of one request that are shown."""

Status = Mapping[str, str]


class Asked(Struct, frozen=True):
    """A session's capabilities, reduced to what a list shows."""

    requested: list[BrowserView]
    actual: BrowserView | None
    name: str
    video: str | None


NOTHING_KNOWN = Asked([], None, "", None)


class SessionsView:
    """Reads sessions. Remembers the capabilities of the active ones: they are big and change only once.

    Every question says to which account it is `limited_to`; None is for operators, who see all. There is no
    default, so the type checker finds a caller that forgets it. Sessions of other accounts do not exist.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sessions = Sessions(store)
        self._known: dict[str, Asked] = {}

    async def active_ids(self, *, limited_to: str | None) -> set[str]:
        """Which sessions have not ended."""
        if limited_to is None:
            return set(await self._store.smembers(grid.SESSIONS_ACTIVE()))
        # Redis goes through the smaller set: those that ended long ago cost nothing.
        return set(await self._store.send("SINTER", grid.SESSIONS_ACTIVE(), grid.SESSIONS_OF(limited_to)))

    async def active(
        self, *, limited_to: str | None, start: int = 0, limit: int = MAX_SESSIONS
    ) -> ActiveSessions:
        """The sessions that have not ended: at most so many, from this one on."""
        statuses = await self._statuses(await self.active_ids(limited_to=limited_to))
        living = {each: status for each, status in statuses.items() if State.TERMINATED.stamp not in status}
        counts = Counter({str(state): 0 for state in State if state is not State.TERMINATED})
        counts.update(str(state_of(status)) for status in living.values())
        shown = dict(sorted(living.items(), key=_requested_at)[start : start + limit])
        asked = await self._asked(shown)
        waiting = await positions(self._store)
        if limited_to is None:  # Else it is not known which of the others are over.
            self._known = {
                each: each_asked for each, each_asked in (self._known | asked).items() if each in living
            }
        return ActiveSessions(await self._complete(shown, asked, waiting), dict(counts))

    async def terminated(self, *, limited_to: str | None, cursor: str = "0", limit: int = 50) -> SessionPage:
        """About so many ended sessions. The set has no order, so only each page for itself is sorted."""
        # An account's set holds its active ones, too. They are few, and one set is easier to keep than two.
        found = grid.SESSIONS_TERMINATED() if limited_to is None else grid.SESSIONS_OF(limited_to)
        while True:
            cursor, ids = await self._store.send("SSCAN", found, cursor, "COUNT", limit)
            statuses = await self._statuses(ids)
            if limited_to is not None:
                statuses = {each: has for each, has in statuses.items() if State.TERMINATED.stamp in has}
            if statuses or cursor == "0":  # A scan may come back with nothing before it is through.
                break
        shown = dict(sorted(statuses.items(), key=_requested_at, reverse=True))
        sessions = await self._complete(shown, await self._asked(shown), {})
        return SessionPage(sessions, None if cursor == "0" else cursor)

    async def session(self, session: str, *, limited_to: str | None) -> SessionDetail:
        """All about one session; SessionLost when there is none."""
        log = await self.log(session, limited_to=limited_to)
        statuses = await self._statuses([session])
        if not statuses:
            raise SessionLost(f"There is no session {clip(session)!r}.")
        texts = self._store.hmget(grid.SESSION_CAPABILITIES(session), "requested", "actual")
        labels = self._store.hgetall(grid.SESSION_METADATA(session))
        waiting = await positions(self._store)
        seen = (await self._complete(statuses, await self._asked(statuses), waiting))[0]
        requested, actual = (_decode(text) for text in await texts)
        if isinstance(actual, dict):
            actual = for_viewer(actual, session=session)
        return SessionDetail(
            **msgspec.structs.asdict(seen),
            labels=mask(await labels),
            requested_capabilities=mask(sets_of(requested)),
            actual_capabilities=mask(actual),
            log=log,
        )

    async def video_file(self, session: SessionId) -> str | None:
        """The name of the file with the session's recording, if there is one."""
        actual = _decode(await self._store.hget(grid.SESSION_CAPABILITIES(session), "actual"))
        told = actual.get("remuda:video") if isinstance(actual, dict) else None
        file = told.get("file") if isinstance(told, dict) else None
        return file.rpartition("/")[2] if isinstance(file, str) else None

    async def log(
        self, session: str, *, limited_to: str | None, after: str = "", limit: int = KEPT_LOG_ENTRIES
    ) -> list[LogEntry]:
        """What happened to a session, oldest first; SessionLost when there is no such session."""
        # Checked before it becomes part of a key: what is not an id of ours is not looked up.
        if not is_uuid(session):
            raise SessionLost(f"There is no session {clip(session)!r}.")
        exists = self._store.exists(grid.SESSION_STATUS(session))
        entries = stream_entries(
            await self._store.xrange(grid.SESSION_LOG(session), after=after, limit=limit)
        )
        is_seen = await self._sessions.is_seen(SessionId(session), limited_to=limited_to)
        if not await exists or not is_seen:
            raise SessionLost(f"There is no session {session!r}.")
        return [_log_entry(number, fields) for number, fields in entries]

    # Rounds of reading

    async def _statuses(self, ids: Collection[str]) -> dict[str, Status]:
        """The sessions that are (still) there, with the times of their states."""
        replies = [(each, self._store.hgetall(grid.SESSION_STATUS(each))) for each in ids if is_uuid(each)]
        statuses = {each: await reply for each, reply in replies}
        return {each: status for each, status in statuses.items() if state_of(status) is not None}

    async def _asked(self, ids: Collection[str]) -> dict[str, Asked]:
        known = {each: self._known[each] for each in ids if each in self._known}
        wanting = [each for each in ids if each not in known or known[each].actual is None]
        keys = {each: grid.SESSION_CAPABILITIES(each) for each in wanting}
        lengths = [
            (each, self._store.send("HSTRLEN", key, "requested"), self._store.send("HSTRLEN", key, "actual"))
            for each, key in keys.items()
        ]
        small = [each for each, *sizes in lengths if sum([await size for size in sizes]) <= MAX_CAPABILITIES]
        texts = [(each, self._store.hmget(keys[each], "requested", "actual")) for each in small]
        fresh = {each: _reduce(*(await pair)) for each, pair in texts}
        return {each: fresh.get(each) or known.get(each) or NOTHING_KNOWN for each in ids}

    async def _complete(
        self, statuses: Mapping[str, Status], asked: Mapping[str, Asked], waiting: Mapping[str, int]
    ) -> list[SessionView]:
        replies = [
            (
                each,
                self._store.hmget(grid.SESSION_METADATA(each), "name", "build"),
                self._store.hmget(grid.SESSION_DOWNSTREAM(each), "host", "userAgent", "lastSeen"),
                self._store.get(grid.SESSION_SLOT(each)),
                self._store.lrange(grid.SESSION_ORCHESTRATOR(each), 0, 0),
                self._store.exists(grid.SESSION_STORAGE(each)),
                self._store.hget(grid.SESSION_ORIGIN(each), "account"),
            )
            for each in statuses
        ]
        views = []
        for each, metadata, client, slot, orchestrator, stored, account in replies:
            status, known = statuses[each], asked[each]
            name, build = (clip(text or "") for text in await metadata)
            views.append(
                SessionView(
                    id=each,
                    account=await account or "",
                    state=state_of(status) or State.TERMINATED,
                    name=name or known.name,
                    build=build,
                    requested=known.requested,
                    actual=known.actual,
                    client=ClientView(*(clip(text or "") for text in await client)),
                    position=waiting.get(each),
                    slot=await slot,
                    orchestrator=next(iter(await orchestrator), None),
                    queued_at=status.get(State.QUEUED.stamp),
                    pending_at=status.get(State.PENDING.stamp),
                    alive_at=status.get(State.ALIVE.stamp),
                    terminated_at=status.get(State.TERMINATED.stamp),
                    age=_age(status),
                    # Gone with the files, should they have been evicted.
                    video_url=known.video if await stored else None,
                )
            )
        return views


# What was read, made presentable


def _requested_at(item: tuple[str, Status]) -> tuple[str, str]:
    session, status = item
    return status.get(State.QUEUED.stamp, ""), session  # Stamps of one form compare as text.


def _age(status: Status) -> float:
    try:
        began = clock.parse_rfc3339(status[State.QUEUED.stamp])
        ended = status.get(State.TERMINATED.stamp)
        return max(0.0, round((clock.parse_rfc3339(ended) if ended else clock.now()) - began, 3))
    except (KeyError, ValueError):
        return 0.0  # Another program wrote it, in another form.


def _reduce(requested: str | None, actual: str | None) -> Asked:
    wanted = sets_of(_decode(requested))
    got = _decode(actual)
    told = got.get("remuda:video") if isinstance(got, dict) else None
    url = told.get("url") if isinstance(told, dict) else None
    name = next((each["se:name"] for each in wanted if isinstance(each.get("se:name"), str)), "")
    return Asked(
        requested=[_browser(each) for each in wanted[:MAX_SETS]],
        actual=_browser(got) if isinstance(got, dict) else None,
        name=clip(name),
        video=url if isinstance(url, str) else None,
    )


def _browser(capabilities: Mapping[str, Any]) -> BrowserView:
    values = (capabilities.get(name) for name in ("browserName", "browserVersion", "platformName"))
    return BrowserView(*(clip(value) if isinstance(value, str) else "" for value in values))


def _log_entry(number: str, fields: Mapping[str, str]) -> LogEntry:
    written_ms = int(number.partition("-")[0])
    code = fields.get("code", "")
    return LogEntry(
        id=number,
        time=clock.rfc3339(written_ms / 1000),
        component=fields.get("component", ""),
        level=fields.get("level", ""),
        code=code,
        meaning=BY_CODE[code].meaning if code in BY_CODE else "",
        meta=mask(read_meta(fields.get("meta", ""))),
    )


def _decode(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text  # The documents say "additional information": another writer may put plain words.
