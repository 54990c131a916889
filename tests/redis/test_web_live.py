"""The live overview: a change is told to all who watch, and read once for all of them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest

import servers
from credentials import herd_headers
from remuda.base.errors import Unavailable
from remuda.store import Store
from remuda.web import live
from remuda.web.api import Api
from remuda.web.live import Live
from remuda.web.overview import Overview, PlaywrightView, SlotCount
from waiting import eventually
from web_states import Rider, herd_client, orchestrator, running, serving, visiting

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


def herd(used: int = 0) -> Overview:
    return Overview("now", "1", SlotCount(used, 8), {}, [], [], [], PlaywrightView(0, [], []), [])


async def test_a_change_reaches_everybody_who_watches(store: Store) -> None:
    async with running(orchestrator(store)), visiting(store) as client:
        async with client.get("/api/live") as one, client.get("/api/live") as other:
            streams = [events(one), events(other)]
            before = [await next_event(stream, "overview") for stream in streams]
            session = await Rider(store).serve(browserName="chrome")

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

    async def read() -> Overview:
        nonlocal reads
        reads += 1
        return herd()

    feed = Live(read, look_every=60.0)
    looking = asyncio.create_task(feed.run())
    try:
        await asyncio.sleep(0)
        assert reads == 0

        viewers = [feed.watch() for _ in range(50)]
        for _ in range(2):  # The time to come back after, then the overview.
            async with asyncio.timeout(DEADLINE):
                messages = [await anext(viewer) for viewer in viewers]

        assert reads == 1
        assert set(messages) == {live.event("overview", herd())}
    finally:
        looking.cancel()


async def test_nothing_is_sent_while_nothing_happens_but_a_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "BEAT_EVERY", 0.05)
    reads = 0

    async def read() -> Overview:
        nonlocal reads
        reads += 1
        return Overview(f"at {reads}", "1", SlotCount(0, 8), {}, [], [], [], PlaywrightView(0, [], []), [])

    feed = Live(read, look_every=0.0)
    looking = asyncio.create_task(feed.run())
    try:
        viewer = feed.watch()
        async with asyncio.timeout(DEADLINE):
            messages = [await anext(viewer) for _ in range(4)]

        assert reads > 1
        assert [message.partition(b"\n")[0] for message in messages[1:]] == [
            b"event: overview",
            b"event: beat",
            b"event: beat",
        ]
    finally:
        looking.cancel()


async def test_who_comes_after_all_have_left_is_not_shown_how_it_was() -> None:
    used = 0

    async def read() -> Overview:
        return herd(used)

    feed = Live(read, look_every=0.0)
    looking = asyncio.create_task(feed.run())
    try:
        first = feed.watch()
        async with asyncio.timeout(DEADLINE):
            await anext(first)
            await anext(first)
            await first.aclose()  # type: ignore[attr-defined]
            used = 5
            second = feed.watch()
            await anext(second)
            message = await anext(second)

        assert message == live.event("overview", herd(5))
    finally:
        looking.cancel()


async def test_a_bug_in_reading_is_told_and_does_not_end_the_feed() -> None:
    is_broken = True

    async def read() -> Overview:
        if is_broken:
            raise ZeroDivisionError
        return herd()

    feed = Live(read, look_every=0.0)
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
        assert recovered == live.event("overview", herd())
    finally:
        looking.cancel()


async def test_too_many_viewers_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MAX_VIEWERS", 1)

    async def read() -> Overview:
        return herd()

    feed = Live(read)
    first = feed.watch()
    await anext(first)

    with pytest.raises(Unavailable):
        feed.watch()


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
    api = Api(store)
    async with aiohttp.ClientSession(headers=await herd_headers(store)) as client:
        async with asyncio.timeout(DEADLINE), serving(api) as url:
            response = await client.get(f"{url}/api/live")
            await next_event(events(response), "overview")
            await api.drain()
            rest = await response.content.read()

        assert b"event: problem" not in rest


async def test_who_only_wants_the_head_of_the_stream_is_no_viewer(store: Store) -> None:
    api = Api(store)
    async with serving(api) as url, herd_client(store, url) as client:
        async with client.head("/api/live") as response:
            assert response.headers["Content-Type"].startswith("text/event-stream")

        assert api._herd.live._viewers == 0


async def test_viewers_who_leave_are_no_longer_counted(store: Store) -> None:
    api = Api(store)
    async with serving(api) as url, herd_client(store, url) as client:
        async with client.get("/api/live") as response:
            await next_event(events(response), "overview")

        await eventually(lambda: api._herd.live._viewers == 0)
