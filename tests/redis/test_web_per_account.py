"""What the API shows and does for an account among others: its own, as if there were no others."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
import pytest
from starlette.websockets import WebSocket

from credentials import herd_headers
from grids import advertise, own_slots
from managers import Client
from registered_workers import register
from remuda.accounts.accounts import Accounts
from remuda.accounts.tokens import Tokens
from remuda.base.ids import ConnectionId, SessionId, new_id
from remuda.fleet.origin import Origin, Scope
from remuda.fleet.room import Room
from remuda.fleet.route import WEBSOCKET, Route
from remuda.fleet.uses import Uses
from remuda.grid.model import State
from remuda.grid.queue import positions
from remuda.grid.sessions import Sessions
from remuda.keyspace import grid
from remuda.keyspace.accounts import AUDIT
from remuda.playwright.model import ServedBrowser, WorkerLimits
from remuda.playwright.selector import Selector
from remuda.storage.directory import keep_storage_id
from remuda.store import Store
from remuda.store.commands import stream_entries
from storages import asking, running_storage, write_file
from sweeping import backdate, silence, sweep_all
from waiting import eventually
from web_states import SessionWriter, account_client, get, new_api, orchestrator, running, serving, visiting

STRANGER = Origin(account="", address="10.0.0.9")
QUEUE = "/se/grid/newsessionqueue/queue"


@pytest.fixture
async def url(store: Store) -> AsyncIterator[str]:
    """An api role."""
    async with serving(new_api(store)) as url:
        yield url


@pytest.fixture
async def own(store: Store, url: str) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of the account `own`."""
    async with account_client(store, url, "own") as client:
        yield client


async def audited(store: Store) -> list[tuple[str, str, str, str]]:
    """The audit log: account, token, action and subject."""
    entries = [fields for _, fields in stream_entries(await store.xrange(AUDIT()))]
    return [(each["account"], each["token"], each["action"], each["subject"]) for each in entries]


# Lists


async def test_an_account_with_few_sessions_among_many_gets_all_its_pages(
    store: Store, own: aiohttp.ClientSession
) -> None:
    mine, others = SessionWriter(store, "own"), SessionWriter(store, "other")
    kept = {await mine.queue() for _ in range(300)}
    for session in [*kept, *[await others.queue() for _ in range(600)]]:
        await Sessions(store).move(session, State.TERMINATED, code="CLOSED")
    await mine.queue()

    found: list[str] = []
    pages, cursor = 0, "0"
    while cursor is not None:
        _, page = await get(own, f"/api/sessions?state=terminated&limit=50&cursor={cursor}")
        found += [each["id"] for each in page["sessions"]]
        pages, cursor = pages + 1, page["cursor"]

    assert set(found) == kept
    # A scan may show a session twice, but it goes through the account's own only.
    assert 2 <= pages <= 20


async def test_active_sessions_are_counted_and_paged_for_the_account_alone(
    store: Store, own: aiohttp.ClientSession
) -> None:
    kept = [await SessionWriter(store, "own").queue() for _ in range(3)]
    await SessionWriter(store, "other").queue()

    _, first = await get(own, "/api/sessions?limit=2")
    _, second = await get(own, f"/api/sessions?limit=2&cursor={first['cursor']}")
    _, overview = await get(own, "/api/overview")

    # Those of one millisecond have no order.
    assert sorted(each["id"] for each in first["sessions"] + second["sessions"]) == sorted(kept)
    assert second["cursor"] is None
    assert overview["counts"]["queued"] == 3


async def test_an_account_sees_its_limits_and_what_it_uses(store: Store, own: aiohttp.ClientSession) -> None:
    await Accounts(store).change("own", sessions=10, rate=60)
    uses = Uses(store)
    await uses.take("own", "one")
    await uses.take("other", "two")

    _, overview = await get(own, "/api/overview")
    async with visiting(store) as operator:
        _, whole = await get(operator, "/api/overview")

    assert overview["account"]["limits"] == {"sessions": 10, "rate": 60}
    assert (overview["account"]["name"], overview["account"]["inUse"]) == ("own", 1)
    assert whole["account"] is None


async def test_an_operator_sees_whose_each_session_is(store: Store) -> None:
    sessions = {name: await SessionWriter(store, name).queue() for name in ("own", "other")}

    async with visiting(store) as operator:
        _, overview = await get(operator, "/api/overview")
        _, one = await get(operator, f"/api/sessions/{sessions['other']}")

    assert {each["account"]: each["id"] for each in overview["sessions"]} == sessions
    assert one["account"] == "other"


async def test_an_account_sees_how_many_slots_are_taken_and_not_by_whom(
    store: Store, own: aiohttp.ClientSession
) -> None:
    async with running(orchestrator(store, slots=3)):
        mine = await SessionWriter(store, "own").serve(browserName="chrome")
        other = await SessionWriter(store, "other").serve(browserName="chrome")

        _, overview = await get(own, "/api/overview")
        _, status = await get(own, "/status")

        assert overview["slots"] == {"used": 2, "total": 3}
        assert (overview["orchestrators"], overview["roles"]) == ([], [])
        assert [each["id"] for each in overview["sessions"]] == [mine]
        [node] = status["value"]["nodes"]
        holders = [slot["session"] and slot["session"]["sessionId"] for slot in node["slots"]]
        assert sorted(filter(None, holders)) == sorted([mine, "reserved"])
        assert holders.count(None) == 1
        assert other not in str(status)


async def test_a_purged_session_leaves_its_accounts_set(store: Store) -> None:
    session = await SessionWriter(store, "own").queue()
    await Sessions(store).move(session, State.TERMINATED, code="CLOSED")
    await silence(store, session)
    await backdate(store, session, 61)

    await sweep_all(store, retention=60)

    assert await store.exists(grid.SESSIONS_OF("own")) == 0


async def test_a_session_that_its_accounts_set_has_lost_is_put_back(store: Store) -> None:
    session = await SessionWriter(store, "own").queue()
    await store.delete(grid.SESSIONS_OF("own"))

    await sweep_all(store)

    assert await store.smembers(grid.SESSIONS_OF("own")) == [session]


async def test_graphql_finds_an_accounts_own_sessions_and_no_other(
    store: Store, own: aiohttp.ClientSession
) -> None:
    mine, other = await SessionWriter(store, "own").queue(), await SessionWriter(store, "other").queue()
    found = []
    for session in (mine, other):
        query = {"query": "query($id: String!) { session(id: $id) { id } }", "variables": {"id": session}}
        async with own.post("/graphql", json=query) as response:
            found.append((await response.json())["data"]["session"])

    assert found[1] is None
    # Selenium's schema knows sessions with a slot only; this one waits.
    async with own.post("/graphql", json={"query": "{ sessions { id } }"}) as response:
        assert (await response.json())["data"] == {"sessions": [{"id": mine}]}


# Playwright


async def test_an_account_sees_its_own_playwright_connections(
    store: Store, own: aiohttp.ClientSession
) -> None:
    await register(store, "w1")
    selector = Selector(store, WorkerLimits())
    places = {
        account: await selector.pick(
            ServedBrowser("chromium"),
            ConnectionId(new_id()),
            origin=Origin(account=account, address="10.0.0.7"),
        )
        for account in ("own", "other")
    }

    _, listed = await get(own, "/api/playwright/connections")
    _, overview = await get(own, "/api/overview")
    refused, _ = await get(own, "/api/playwright/workers")

    mine = places["own"]
    assert mine is not None
    assert [each["id"] for each in listed["connections"]] == [mine.connection]
    assert overview["playwright"] == {"connections": 1, "workers": [], "queue": []}
    assert refused == 403


# The queue


async def test_clearing_the_queue_sends_away_the_accounts_own(
    store: Store, client: Client, own: aiohttp.ClientSession
) -> None:
    await advertise(store, "ranch", "chrome::130.0.6723.91")
    await own_slots(store, "ranch", 0)
    waiting = [
        asyncio.create_task(client.ask(**{"X-Remuda-Account": account})) for account in ("own", "other")
    ]

    async def are_in_line() -> bool:
        return len(await positions(store)) == 2

    await eventually(are_in_line)
    _, listed = await get(own, QUEUE)

    status, answer = await get(own, QUEUE, method="DELETE")

    assert len(listed["value"]) == 1
    assert (status, answer["value"]) == (200, 1)
    async with asyncio.timeout(10):
        assert (await waiting[0]).message == "Request queue was cleared"
    assert len(await positions(store)) == 1
    assert ("own", "ci", "queue.clear", "queue") in await audited(store)
    async with visiting(store) as operator:
        assert (await get(operator, QUEUE, method="DELETE"))[1]["value"] == 1
    await asyncio.gather(*waiting)


# What is done, and who has done it


@pytest.mark.parametrize("path", ["/api/sessions/{}", "/se/grid/node/session/{}"])
async def test_an_end_is_noted_once_with_who_wanted_it(
    store: Store, own: aiohttp.ClientSession, path: str
) -> None:
    session = await SessionWriter(store, "own").queue()
    for _ in range(2):
        await get(own, path.format(session), method="DELETE")

    assert await audited(store) == [("own", "ci", "session.end", session)]


async def test_drains_are_noted(store: Store) -> None:
    async with running(orchestrator(store)), visiting(store) as client:
        for method in ("POST", "DELETE"):
            await get(client, "/api/orchestrators/ranch/drain", method=method)
        await get(client, "/se/grid/node/drain", method="POST")

    assert [each[2:] for each in await audited(store)] == [
        ("orchestrator.drain", "ranch"),
        ("orchestrator.resume", "ranch"),
        ("orchestrator.drain", "ranch"),
    ]


@pytest.mark.parametrize("path", ["/api/sessions/{}/artifacts", "/video/{}.mp4"])
async def test_deleted_artifacts_are_noted(store: Store, own: aiohttp.ClientSession, path: str) -> None:
    session = await SessionWriter(store, "own").queue()
    await store.set(grid.SESSION_STORAGE(session), new_id())

    await get(own, path.format(session), method="DELETE")

    assert await audited(store) == [("own", "ci", "artifacts.delete", session)]


# Shares


async def shared(client: aiohttp.ClientSession, session: str, name: str, **body: Any) -> tuple[int, Any]:
    async with client.post(f"/api/sessions/{session}/artifacts/{name}/share", json=body) as response:
        return response.status, await response.json()


async def recorded(store: Store, directory: Path) -> SessionId:
    """A session of the account `own` with a recording under a name of its own."""
    session, storage = await SessionWriter(store, "own").queue(), keep_storage_id(directory)
    place = f"/storage/{storage}/{session}"
    actual = {"remuda:video": {"url": f"{place}/video.m3u8", "file": f"{place}/checkout.mp4"}}
    await store.hset(grid.SESSION_CAPABILITIES(session), {"actual": msgspec.json.encode(actual)})
    await store.set(grid.SESSION_STORAGE(session), storage)
    for name in ("video.m3u8", "stream.m3u8", "messages.m3u8", "silence.vtt", "messages-00007.vtt"):
        write_file(directory, session, name)
    for name in ("checkout.mp4", "other.txt"):
        write_file(directory, session, name)
    return session


async def test_a_shared_playlist_plays_for_anybody_and_opens_nothing_else(
    store: Store, own: aiohttp.ClientSession, tmp_path: Path
) -> None:
    session = await recorded(store, tmp_path)
    async with running_storage(store, tmp_path) as storage:
        status, share = await shared(own, session, "video.m3u8")
        path = urlsplit(share["url"]).path
        beside = path.rpartition("/")[0]
        files = sorted(each.name for each in (tmp_path / session).iterdir())
        statuses = {}
        for name in files:
            async with asking(storage, f"{beside}/{name}", STRANGER) as answer:
                statuses[name] = answer.status

    assert status == 200
    assert path.endswith("/video.m3u8")
    assert statuses == {name: 404 if name == "other.txt" else 200 for name in files}
    assert await audited(store) == [("own", "ci", "artifact.share", f"{session}/video.m3u8")]


async def test_a_shared_file_is_shared_alone_for_as_long_as_was_asked(
    store: Store, own: aiohttp.ClientSession, tmp_path: Path
) -> None:
    session = await recorded(store, tmp_path)
    async with running_storage(store, tmp_path) as storage:
        _, share = await shared(own, session, "other.txt", expires="1h")
        path = urlsplit(share["url"]).path
        async with asking(storage, path, STRANGER) as answer:
            assert answer.status == 200
        async with asking(storage, path.replace("other.txt", "checkout.mp4"), STRANGER) as answer:
            assert answer.status == 404


@pytest.mark.parametrize("expires", ["91d", "soon", "0d", "", "-1d"])
async def test_a_share_for_too_long_or_for_no_time_is_refused(
    store: Store, own: aiohttp.ClientSession, tmp_path: Path, expires: str
) -> None:
    status, answer = await shared(own, await recorded(store, tmp_path), "other.txt", expires=expires)

    assert (status, answer["error"]["code"]) == (400, "invalid_argument")
    assert await audited(store) == []


# WebSockets


async def test_a_websocket_is_refused_before_it_is_accepted(store: Store) -> None:
    async def greet(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text("hello")

    room = Room(
        name="parlour",
        routes=lambda _: [Route(WEBSOCKET, "/parlour", "Greets", greet, "text/plain", scope=Scope.USE)],
    )
    async with serving(new_api(store, room)) as url:
        statuses = []
        for asker in (STRANGER, Origin(account="own", address="h", scopes=frozenset({Scope.USAGE}))):
            async with aiohttp.ClientSession(url, headers=await herd_headers(store, asker)) as client:
                with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                    await client.ws_connect("/parlour")
                statuses.append(refused.value.status)
        async with account_client(store, url, "own") as client, client.ws_connect("/parlour") as socket:
            assert await socket.receive_str(timeout=10) == "hello"

        assert statuses == [401, 403]


async def test_a_websocket_is_closed_when_its_token_is_revoked(store: Store) -> None:
    async def listen(socket: WebSocket) -> None:
        await socket.accept()
        await socket.receive_text()

    room = Room(
        name="parlour",
        routes=lambda _: [Route(WEBSOCKET, "/parlour", "Listens", listen, "text/plain", scope=Scope.USE)],
    )
    async with (
        serving(new_api(store, room)) as url,
        account_client(store, url, "own") as client,
        client.ws_connect("/parlour") as socket,
    ):
        await Tokens(store).revoke("ci", account="own", keep_last_admin=False)

        closed = await socket.receive(timeout=10)
        assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 1008)
