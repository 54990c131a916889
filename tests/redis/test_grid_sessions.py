"""What is written about a session: complete from its first moment, and only ever moved on."""

import asyncio
import functools
import itertools
from collections import Counter
from typing import Any

import msgspec
import pytest

from grids import check_counters, codes_of, log_of, new_session
from proxies import Proxy, listening
from remuda.base import clock
from remuda.base.ids import OrchestratorId, SessionId, new_id
from remuda.fleet.origin import DEFAULT_ACCOUNT, Origin
from remuda.grid.model import LEGAL_ORIGINS, STARTUP_BUCKETS, State
from remuda.grid.omission import encode_request
from remuda.grid.sessions import Sessions, node_beat, session_bell
from remuda.grid.view.sessions import SessionsView
from remuda.keyspace import grid, metrics
from remuda.store import Store
from remuda.store.census import take_census

CODES = {State.PENDING: "SCHED", State.ALIVE: "NALIVE", State.TERMINATED: "CLOSED"}
WAYS = {
    State.QUEUED: [],
    State.PENDING: [State.PENDING],
    State.ALIVE: [State.PENDING, State.ALIVE],
    State.TERMINATED: [State.TERMINATED],
}
"""State -> the moves that bring a new session there."""


async def move(store: Store, session: SessionId, state: State, **meta: Any) -> bool:
    return await Sessions(store).move(
        session, state, code=CODES[state], orchestrator=OrchestratorId("o1"), **meta
    )


async def session_in(store: Store, state: State) -> SessionId:
    session = await new_session(store)
    for step in WAYS[state]:
        assert await move(store, session, step)
    return session


async def everything(store: Store) -> dict[str, object]:
    """All of Redis, to see whether anything has changed."""
    names = await store.send("KEYS", "*")
    return {name: await store.send("DUMP", name) for name in sorted(names)}


# Creation


async def test_a_new_session_has_exactly_the_documented_keys_and_its_origin(store: Store) -> None:
    session = SessionId(new_id())
    requested = [{"browserName": "chrome"}]

    await Sessions(store).create(
        session, requested=encode_request(requested), origin=Origin(address="h"), user_agent="a"
    )

    status = await store.hgetall(grid.SESSION_STATUS(session))
    assert set(await store.send("KEYS", "*")) == {
        grid.SESSION_STATUS(session),
        grid.SESSION_CAPABILITIES(session),
        grid.SESSION_DOWNSTREAM(session),
        grid.SESSION_ORIGIN(session),
        grid.SESSION_HEARTBEAT_MANAGER(session),
        grid.SESSIONS_ACTIVE(),
        grid.SESSIONS_OF(DEFAULT_ACCOUNT),
        metrics.METRICS_SESSIONS_TOTAL(),
    }
    assert status.keys() == {"queuedAt"}
    assert clock.parse_rfc3339(status["queuedAt"]) <= clock.now()
    capabilities = await store.hgetall(grid.SESSION_CAPABILITIES(session))
    assert {name: msgspec.json.decode(text) for name, text in capabilities.items()} == {
        "requested": {"alwaysMatch": {"browserName": "chrome"}, "firstMatch": [{}]}
    }
    assert await store.hgetall(grid.SESSION_DOWNSTREAM(session)) == {
        "host": "h",
        "userAgent": "a",
        "lastSeen": status["queuedAt"],
    }
    assert await store.hgetall(grid.SESSION_ORIGIN(session)) == {
        "account": DEFAULT_ACCOUNT,
        "address": "h",
        "scheme": "http",
        "host": "127.0.0.1",
        "token": "",
    }
    assert await store.smembers(grid.SESSIONS_ACTIVE()) == [session]
    assert await store.hgetall(metrics.METRICS_SESSIONS_TOTAL()) == {"queued": "1"}
    assert 0 < await store.ttl_ms(grid.SESSION_HEARTBEAT_MANAGER(session)) <= 30_000
    assert await take_census(store) == []


async def test_a_new_session_appears_at_once_with_its_heartbeat(redis_url: str) -> None:
    proxy = Proxy(redis_url)
    async with listening(proxy.talk) as url, Store(url) as store:
        proxy.received.clear()

        session = await new_session(store)

    (sent,) = [chunk for chunk in proxy.received if session.encode() in chunk]
    assert sent.index(b"MULTI") < sent.index(b"heartbeat.manager") < sent.index(b"EXEC")
    assert sent.count(b"EXEC") == 1


async def test_a_session_is_in_the_state_it_was_brought_to(store: Store) -> None:
    sessions = Sessions(store)

    assert await sessions.state(SessionId(new_id())) is None
    for state in State:
        assert await sessions.state(await session_in(store, state)) is state


async def test_what_was_asked_for_can_be_read_again(store: Store) -> None:
    session = await new_session(store, [{"se:name": "Bärbel"}])

    assert await Sessions(store).requested(session) == [{"se:name": "Bärbel"}]
    assert await Sessions(store).requested(SessionId(new_id())) is None


# Moves


@pytest.mark.parametrize(("origin", "state"), list(itertools.product(State, CODES)))
async def test_a_session_moves_only_where_it_may(store: Store, origin: State, state: State) -> None:
    session = await session_in(store, origin)
    # It has a second to live in some states, and the machine may be busy for longer.
    await store.expire(grid.SESSION_HEARTBEAT_MANAGER(session), 30)
    before = await everything(store)

    moved = await move(store, session, state)

    assert moved == (origin in LEGAL_ORIGINS[state])
    assert await Sessions(store).state(session) is (state if moved else origin)
    if not moved:
        assert await everything(store) == before
    assert await take_census(store) == []


async def test_a_session_that_nobody_asked_for_cannot_be_moved(store: Store) -> None:
    for state in CODES:
        assert not await move(store, SessionId(new_id()), state)

    assert await everything(store) == {}


async def test_of_many_who_end_a_session_at_once_exactly_one_does(store: Store, redis_url: str) -> None:
    session = await session_in(store, State.ALIVE)
    async with Store(redis_url) as one, Store(redis_url) as two:
        moves = [move(each, session, State.TERMINATED) for _ in range(20) for each in (store, one, two)]

        assert Counter(await asyncio.gather(*moves)) == {True: 1, False: 59}

    assert await codes_of(store, session) == ["SCHED", "NALIVE", "CLOSED"]
    assert await store.hget(metrics.METRICS_SESSIONS_TOTAL(), "terminated") == "1"


async def test_a_session_is_active_until_it_ends_and_terminated_from_then_on(store: Store) -> None:
    session = await session_in(store, State.ALIVE)
    assert await store.smembers(grid.SESSIONS_ACTIVE()) == [session]

    await move(store, session, State.TERMINATED)

    assert await store.smembers(grid.SESSIONS_ACTIVE()) == []
    assert await store.smembers(grid.SESSIONS_TERMINATED()) == [session]


async def test_a_scheduled_session_knows_its_orchestrator(store: Store) -> None:
    session = await session_in(store, State.ALIVE)

    assert await store.lrange(grid.SESSION_ORCHESTRATOR(session)) == ["o1"]


async def test_the_managers_beat_ends_when_the_node_takes_over(store: Store) -> None:
    session = await session_in(store, State.PENDING)
    assert await store.ttl_ms(grid.SESSION_HEARTBEAT_MANAGER(session)) > 1000

    await move(store, session, State.ALIVE)

    assert await store.ttl_ms(grid.SESSION_HEARTBEAT_MANAGER(session)) <= 1000


async def test_all_beats_end_with_the_session(store: Store) -> None:
    session = await session_in(store, State.PENDING)
    node_beat(session).write(store)

    await move(store, session, State.TERMINATED)

    assert await store.ttl_ms(grid.SESSION_HEARTBEAT_MANAGER(session)) <= 1000
    assert await store.ttl_ms(grid.SESSION_HEARTBEAT_NODE(session)) <= 1000


async def test_every_move_rings_the_sessions_bell(store: Store) -> None:
    session = await new_session(store)

    with store.subscribe(session_bell(session)) as rings:
        heard = []
        for state in (State.PENDING, State.ALIVE, State.TERMINATED):
            await move(store, session, state)
            heard += await rings.wait(10)

    assert heard == ["pending", "alive", "terminated"]


async def test_a_refused_move_rings_no_bell(store: Store) -> None:
    session = await session_in(store, State.TERMINATED)

    with store.subscribe(session_bell(session)) as rings:
        await move(store, session, State.ALIVE)
        await store.publish(session_bell(session), "last")

        assert await rings.wait(10) == ["last"]


# Time


async def moved_at(store: Store, monkeypatch: pytest.MonkeyPatch, *times: float) -> SessionId:
    """A session whose states were entered at these times, by clocks that need not agree."""
    monkeypatch.setattr(clock, "now", lambda: times[0])
    session = await new_session(store)
    for state, time in zip(CODES, times[1:], strict=False):
        monkeypatch.setattr(clock, "now", functools.partial(float, time))
        assert await move(store, session, state)
    return session


async def test_a_life_never_runs_backwards_whatever_the_clocks_say(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await moved_at(store, monkeypatch, 1000.5, 990.25, 1003.0, 900.0)

    assert await store.hgetall(grid.SESSION_STATUS(session)) == {
        "queuedAt": clock.rfc3339(1000.5),
        "pendingAt": clock.rfc3339(1000.5),
        "aliveAt": clock.rfc3339(1003.0),
        "terminatedAt": clock.rfc3339(1003.0),
    }


async def test_the_time_in_each_state_is_added_when_it_is_left(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await moved_at(store, monkeypatch, 1000.0, 1001.25, 1003.5, 1063.75)
    await moved_at(store, monkeypatch, 2000.0, 2000.5)

    spent = await store.hgetall(metrics.METRICS_SESSIONS_DURATION())

    assert {state: float(seconds) for state, seconds in spent.items()} == {
        "queued": 1.75,
        "pending": 2.25,
        "alive": 60.25,
    }


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("2024-02-28T23:59:59.500Z", "2024-03-01T00:00:00.250Z"),
        ("2023-02-28T23:59:59.500Z", "2023-03-01T00:00:00.250Z"),
        ("2026-12-31T23:59:59.999Z", "2027-01-01T00:00:00.000Z"),
        ("2099-12-31T12:00:00.000Z", "2100-03-01T00:00:00.125Z"),
        ("2026-07-05T08:00:00.000Z", "2026-08-05T09:30:15.001Z"),
    ],
)
async def test_durations_are_right_across_days_months_and_leap_years(
    store: Store, monkeypatch: pytest.MonkeyPatch, begin: str, end: str
) -> None:
    times = clock.parse_rfc3339(begin), clock.parse_rfc3339(end)

    await moved_at(store, monkeypatch, *times)

    spent = float(await store.hget(metrics.METRICS_SESSIONS_DURATION(), "queued") or "nan")
    assert spent == pytest.approx(times[1] - times[0], abs=0.0011)


@pytest.mark.parametrize(
    "stamp", ["2026-07-05T08:00:00.123456789+00:00", "2026-07-05T10:30:00.123456789+02:30"]
)
async def test_a_session_that_other_software_has_stamped_moves_on(
    store: Store, monkeypatch: pytest.MonkeyPatch, stamp: str
) -> None:
    session = await new_session(store)
    await store.hset(grid.SESSION_STATUS(session), {"queuedAt": stamp})
    monkeypatch.setattr(clock, "now", lambda: clock.parse_rfc3339("2026-07-05T08:00:02.623Z"))

    assert await move(store, session, State.PENDING)

    assert await store.hget(grid.SESSION_STATUS(session), "pendingAt") == "2026-07-05T08:00:02.623Z"
    spent = await store.hget(metrics.METRICS_SESSIONS_DURATION(), "queued")
    assert float(spent or "nan") == pytest.approx(2.5, abs=0.0011)


# Log and counters


async def test_a_move_is_logged_with_its_code_and_what_is_to_be_said(store: Store) -> None:
    session = await new_session(store)

    await Sessions(store).move(session, State.TERMINATED, code="QTIMEOUT", message="No browser")

    assert await log_of(store, session) == [("QTIMEOUT", {"message": "No browser"})]
    ((_, fields),) = await store.xrange(grid.SESSION_LOG(session))
    assert fields[:6] == ["component", "manager", "level", "fail", "code", "QTIMEOUT"]


async def test_the_counters_say_what_the_logs_say(store: Store) -> None:
    for state in State:
        session = await session_in(store, state)
        await Sessions(store).log(session, "QUEUED")
        await Sessions(store).move(session, State.TERMINATED, code="CLEFT")

    await check_counters(store)
    assert await store.hgetall(metrics.METRICS_SESSIONS_TOTAL()) == {
        "queued": "4",
        "pending": "2",
        "alive": "1",
        "terminated": "4",
    }


async def test_an_entry_and_its_counter_are_written_together(store: Store) -> None:
    session = await new_session(store)

    await Sessions(store).log(session, "BOOT")
    await Sessions(store).log(session, "DFAILURE", message="It crashed")

    assert await log_of(store, session) == [("BOOT", {}), ("DFAILURE", {"message": "It crashed"})]
    await check_counters(store)


async def test_a_failure_is_remembered_before_all_else(store: Store) -> None:
    session = await session_in(store, State.PENDING)
    await Sessions(store).move(session, State.TERMINATED, code="DFAILURE", message="It crashed")
    await Sessions(store).log(session, "HALT")

    assert await Sessions(store).last_words(session) == ("DFAILURE", {"message": "It crashed"})
    assert await Sessions(store).last_words(SessionId(new_id())) is None


@pytest.mark.parametrize(
    ("meta", "words"), [("It crashed", {"message": "It crashed"}), ("", {}), ("7", {"message": "7"})]
)
async def test_other_software_may_say_in_plain_text_why_a_session_ended(
    store: Store, meta: str, words: dict[str, str]
) -> None:
    session = await new_session(store)
    for level, code, text in (("INFO", "BOOT", "{}"), ("FAIL", "DFAILURE", meta), ("INFO", "HALT", "{}")):
        entry = ("component", "node", "level", level, "code", code, "meta", text)
        await store.send("XADD", grid.SESSION_LOG(session), "*", *entry)

    assert await Sessions(store).last_words(session) == ("DFAILURE", words)
    assert (await SessionsView(store).log(session, limited_to=None))[1].meta == words


async def test_start_ups_are_counted_in_every_bucket_they_fit_in(store: Store) -> None:
    for seconds in (0.5, 2.0, 3.25, 10_000.0):
        await Sessions(store).count_startup(seconds)

    buckets = await store.hgetall(metrics.METRICS_STARTUP_BUCKETS())
    assert await store.get(metrics.METRICS_STARTUP_COUNT()) == "4"
    assert float(await store.get(metrics.METRICS_STARTUP_SUM()) or "nan") == 10_005.75
    assert buckets == {"2": "2", **{str(bucket): "3" for bucket in STARTUP_BUCKETS[1:]}, "+Inf": "4"}
    assert await take_census(store) == []


@pytest.mark.parametrize("fleet", ["", "blue:"])
async def test_fleets_that_share_a_redis_do_not_meet(store: Store, redis_url: str, fleet: str) -> None:
    async with Store(redis_url, prefix=fleet) as own:
        session = await session_in(own, State.TERMINATED)

        assert await own.smembers(grid.SESSIONS_TERMINATED()) == [session]
        assert await take_census(own) == []

    names = await store.send("KEYS", "*")
    assert names
    assert all(name.startswith(fleet) for name in names)
