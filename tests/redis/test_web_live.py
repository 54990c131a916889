"""The live overview: a change is told to all who watch, and read once for all of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import aiohttp
import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import replace

import servers
from configs import make_config
from credentials import herd_headers
from granted import id_of_token
from remuda.accounts.logins import Logins
from remuda.accounts.model import digest_of
from remuda.accounts.tokens import Tokens
from remuda.base.errors import Unavailable
from remuda.fleet import live as live_module
from remuda.fleet.live import Live, LiveStreams, event
from remuda.fleet.origin import Origin, Scope
from remuda.fleet.room import Surroundings
from remuda.store import Store
from remuda.web.overview import Overview
from waiting import eventually
from web_states import (
    SessionWriter,
    account_client,
    herd_client,
    new_api,
    orchestrator,
    running,
    serving,
    visiting,
)

DEADLINE = 20.0


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Any]]:
    """The events of a stream: name and value."""
    name = ""
    async for line in response.content:
        field, _, value = line.decode().rstrip("\n").partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, msgspec.json.decode(value)


async def next_event(stream: AsyncIterator[tuple[str, Any]], wanted: str) -> Any:
    async with asyncio.timeout(DEADLINE):
        async for name, value in stream:
            if name == wanted:
                return value
    raise AssertionError(f"the stream ended without an event {wanted}")


class Snapshot(Struct):
    """An overview."""

    at: str = "now"
    used: int = 0


def without_time(snapshot: Struct) -> Struct:
    return replace(snapshot, at="")


async def test_a_change_reaches_everybody_who_watches(store: Store) -> None:
    async with running(orchestrator(store)), visiting(store) as client:
        async with client.get("/api/live") as one, client.get("/api/live") as other:
            streams = [events(one), events(other)]
            before = [await next_event(stream, "overview") for stream in streams]
            session = await SessionWriter(store).serve(browserName="chrome")

            async def sees_session(stream: AsyncIterator[tuple[str, Any]]) -> dict[str, Any]:
                while True:
                    overview: dict[str, Any] = await next_event(stream, "overview")
                    if overview["counts"]["alive"]:
                        return overview

            after = [await sees_session(stream) for stream in streams]

        assert [each["sessions"] for each in before] == [[], []]
        assert [each["sessions"][0]["id"] for each in after] == [session, session]
        assert one.headers["Content-Type"].startswith("text/event-stream")
        assert one.headers["Cache-Control"] == "no-store"


async def test_however_many_watch_the_herd_is_read_once_and_not_at_all_without_them() -> None:
    reads = 0

    async def read() -> Snapshot:
        nonlocal reads
        reads += 1
        return Snapshot()

    feed = Live("overview", read, without_time, look_every=60.0)
    looking = asyncio.create_task(feed.run())
    try:
        await asyncio.sleep(0)
        assert reads == 0

        viewers = [feed.watch() for _ in range(50)]
        for _ in range(2):  # The time to come back after, then the overview.
            async with asyncio.timeout(DEADLINE):
                messages = [await anext(viewer) for viewer in viewers]

        assert reads == 1
        assert set(messages) == {event("overview", Snapshot())}
    finally:
        looking.cancel()


async def test_nothing_is_sent_while_nothing_happens_but_a_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "BEAT_EVERY", 0.05)
    reads = 0

    async def read() -> Snapshot:
        nonlocal reads
        reads += 1
        return Snapshot(f"at {reads}")

    feed = Live("overview", read, without_time, look_every=0.0)
    looking = asyncio.create_task(feed.run())
    try:
        viewer = feed.watch()
        names: list[bytes] = []
        async with asyncio.timeout(DEADLINE):
            await anext(viewer)
            # Until it was read again: after a slow look the next one is later than some beats.
            while reads < 3 or names.count(b"event: beat") < 2:
                names.append((await anext(viewer)).partition(b"\n")[0])

        assert names.count(b"event: overview") == 1
        assert set(names) == {b"event: overview", b"event: beat"}
    finally:
        looking.cancel()


async def test_who_comes_after_all_have_left_is_not_shown_how_it_was() -> None:
    used = 0

    async def read() -> Snapshot:
        return Snapshot(used=used)

    feed = Live("overview", read, without_time, look_every=0.0)
    looking = asyncio.create_task(feed.run())
    try:
        first = feed.watch()
        async with asyncio.timeout(DEADLINE):
            await anext(first)
            await anext(first)
            await first.aclose()
            used = 5
            second = feed.watch()
            await anext(second)
            message = await anext(second)

        assert message == event("overview", Snapshot(used=5))
    finally:
        looking.cancel()


async def test_a_bug_in_reading_is_told_and_does_not_end_the_feed() -> None:
    is_broken = True

    async def read() -> Snapshot:
        if is_broken:
            raise ZeroDivisionError
        return Snapshot()

    feed = Live("overview", read, without_time, look_every=0.0)
    looking = asyncio.create_task(feed.run())
    try:
        viewer = feed.watch()
        async with asyncio.timeout(DEADLINE):
            await anext(viewer)
            problem = await anext(viewer)
            is_broken = False
            recovered = await anext(viewer)

        assert b"event: problem" in problem
        assert b"ZeroDivision" not in problem
        assert recovered == event("overview", Snapshot())
    finally:
        looking.cancel()


async def test_too_many_viewers_are_turned_away(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "MAX_VIEWERS", 1)
    overview = Overview(Surroundings(store, make_config(), ()))
    streams = LiveStreams("overview", overview.read, overview.without_time)
    async with aclosing(streams.watch(None)) as first:
        await anext(first)

        with pytest.raises(Unavailable):
            streams.watch("another")


async def test_viewers_of_one_account_do_not_keep_others_out(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "MAX_OF_ACCOUNT", 1)
    session = await SessionWriter(store, "one").queue()
    log = f"/api/sessions/{session}/log/live"
    api = new_api(store)
    async with (
        serving(api) as url,
        account_client(store, url, "one") as one,
        account_client(store, url, "two") as two,
        account_client(store, url, "ops", Scope.ADMIN) as operator,
        one.get("/api/live") as first,
        one.get(log) as first_log,
    ):
        await next_event(events(first), "overview")
        await next_event(events(first_log), "entry")
        clients = (one, two, operator)
        statuses = []
        for client, path in [(each, path) for path in ("/api/live", log) for each in clients]:
            async with client.get(path) as answer:
                statuses.append(answer.status)

        # To the second account there is no such session.
        assert statuses == [503, 200, 200, 503, 404, 200]


async def test_an_account_has_a_stream_of_its_own_while_somebody_watches_it(store: Store) -> None:
    own, other = await SessionWriter(store, "own").queue(), await SessionWriter(store, "other").queue()
    api = new_api(store)
    async with serving(api) as url, account_client(store, url, "own") as client:
        async with client.get("/api/live") as one, client.get("/api/live") as two:
            seen = [await next_event(events(each), "overview") for each in (one, two)]

            assert [[each["id"] for each in overview["sessions"]] for overview in seen] == [[own], [own]]
            assert other not in str(seen)
            assert list(api.live._streams) == ["own"]
        await eventually(lambda: not api.live._streams)


async def test_viewers_of_two_accounts_do_not_see_each_others_changes(store: Store) -> None:
    api = new_api(store)
    async with (
        serving(api) as url,
        account_client(store, url, "one") as one,
        account_client(store, url, "two") as two,
        one.get("/api/live") as first,
        two.get("/api/live") as second,
    ):
        streams = events(first), events(second)
        for stream in streams:
            await next_event(stream, "overview")
        sessions = {name: await SessionWriter(store, name).queue() for name in ("one", "two")}
        seen = [await next_event(stream, "overview") for stream in streams]

        assert [[each["id"] for each in overview["sessions"]] for overview in seen] == [
            [sessions["one"]],
            [sessions["two"]],
        ]


async def test_a_stream_ends_with_the_token_that_it_was_opened_with(store: Store) -> None:
    async with (
        serving(new_api(store)) as url,
        account_client(store, url, "one") as one,
        account_client(store, url, "two") as two,
        one.get("/api/live") as first,
        two.get("/api/live") as second,
    ):
        await next_event(events(first), "overview")
        stream = events(second)
        await next_event(stream, "overview")
        await Tokens(store).revoke("ci", account="one", keep_last_admin=False)
        async with asyncio.timeout(DEADLINE):
            await first.content.read()

        await SessionWriter(store, "two").queue()
        assert await next_event(stream, "overview")


async def test_a_stream_ends_with_the_login_that_it_was_opened_with(store: Store) -> None:
    token, _ = await Tokens(store).create("ci", account="one", scopes={Scope.USE})
    logins = Logins(store, lifetime=60)
    cookie, _ = await logins.begin(token)
    digest = digest_of(cookie)
    origin = Origin(
        account="one",
        address="h",
        token="ci",
        token_id=await id_of_token(store, "one"),
        scopes=frozenset({Scope.USE}),
        login=digest,
    )
    async with (
        serving(new_api(store)) as url,
        herd_client(store, url, origin) as client,
        client.get("/api/live") as response,
    ):
        await next_event(events(response), "overview")
        await logins.end(digest)

        async with asyncio.timeout(DEADLINE):
            await response.content.read()


async def test_when_redis_goes_away_viewers_are_told_and_see_it_come_back(server: servers.Server) -> None:
    async with Store(server.url, timeout=servers.PATIENCE) as store, visiting(store) as client:
        async with client.get("/api/live") as response:
            stream = events(response)
            await next_event(stream, "overview")
            server.kill()
            problem = await next_event(stream, "problem")
            server.start()
            overview = await next_event(stream, "overview")

        assert problem["code"] == "store_unavailable"
        assert overview["sessions"] == []


async def test_a_viewer_does_not_keep_the_role_from_stopping(store: Store) -> None:
    api = new_api(store)
    async with aiohttp.ClientSession(headers=await herd_headers(store)) as client:
        async with asyncio.timeout(DEADLINE), serving(api) as url:
            response = await client.get(f"{url}/api/live")
            await next_event(events(response), "overview")
            await api.drain()
            rest = await response.content.read()

        assert b"event: problem" not in rest


async def test_who_only_wants_the_head_of_the_stream_is_no_viewer(store: Store) -> None:
    api = new_api(store)
    async with serving(api) as url, herd_client(store, url) as client:
        async with client.head("/api/live") as response:
            assert response.headers["Content-Type"].startswith("text/event-stream")

        assert api.live.viewers == 0


async def test_viewers_who_leave_are_no_longer_counted(store: Store) -> None:
    api = new_api(store)
    async with serving(api) as url, herd_client(store, url) as client:
        async with client.get("/api/live") as response:
            await next_event(events(response), "overview")

        await eventually(lambda: api.live.viewers == 0)
