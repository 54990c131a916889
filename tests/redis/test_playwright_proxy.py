"""The proxy on the wire: who gets a client, what passes, and what the counters say meanwhile."""

import asyncio

import aiohttp
import msgspec
import pytest
from aiohttp import web

from registered_workers import active, check_registry, lifetime, set_lifetime, settles_at
from remuda.fleet.origin import Origin
from remuda.keyspace.playwright import PLAYWRIGHT_FAILURES, PLAYWRIGHT_LEASES, PLAYWRIGHT_ORIGINS, WORKER
from remuda.playwright.model import ServedBrowser
from remuda.store import Store
from scripted_workers import USER_AGENT, ScriptedWorker, front_door, workers
from servers import free_port
from waiting import eventually


async def test_a_client_reaches_a_worker_and_is_counted_until_it_leaves(store: Store) -> None:
    worker = ScriptedWorker("w1")
    async with workers(store, worker), front_door(store) as door:
        socket = await door.connect()
        await socket.send_str("hello")

        assert await socket.receive_str() == "hello"
        assert await check_registry(store) == {"w1": 1}
        await socket.close()
        await eventually(lambda: is_active(store, w1=0))
        assert await lifetime(store) == {"chromium:w1": 1}
        assert await check_registry(store) == {"w1": 0}


async def test_a_connection_is_stamped_with_its_origin(store: Store) -> None:
    async with workers(store, ScriptedWorker("w1")), front_door(store, trusted_proxy="127.0.0.1") as door:
        headers = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "herd.example", "X-Remuda-Account": "no"}
        socket = await door.connect(headers=headers)

        (stamped,) = (await store.hgetall(PLAYWRIGHT_ORIGINS(ServedBrowser.CHROMIUM))).values()

        assert msgspec.json.decode(stamped, type=Origin) == Origin(
            address="127.0.0.1", scheme="https", host="herd.example"
        )
        await socket.close()


async def is_active(store: Store, **connections: int) -> bool:
    return await active(store) == {f"chromium:{name}": count for name, count in connections.items()}


async def test_the_clients_headers_pass_and_the_target_is_the_workers(store: Store) -> None:
    worker = ScriptedWorker("w1")
    async with workers(store, worker), front_door(store) as door:
        headers = {"x-playwright-launch-options": "{}", "x-playwright-browser": "chromium", "X-Mine": "yes"}
        socket = await door.connect("/?browser=chromium", headers=headers, compress=15)

        (seen,) = worker.requests
        assert seen.path_qs == worker.path
        assert seen.headers["Host"] == f"127.0.0.1:{worker.port}"
        assert seen.headers["User-Agent"] == USER_AGENT
        assert {name: seen.headers[name] for name in headers} == headers
        assert socket.compress
        await socket.close()


@pytest.mark.parametrize(
    ("path", "headers", "browser"),
    [
        ("/", {}, ServedBrowser.CHROMIUM),
        ("/", {"x-playwright-browser": "firefox"}, ServedBrowser.FIREFOX),
        ("/?browser=webkit", {"x-playwright-browser": "firefox"}, ServedBrowser.WEBKIT),
        ("/playwright", {}, ServedBrowser.CHROMIUM),
        ("/playwright/", {"x-playwright-browser": "firefox"}, ServedBrowser.FIREFOX),
        ("/playwright/webkit", {}, ServedBrowser.WEBKIT),
        ("/playwright/firefox/?browser=webkit", {"x-playwright-browser": "webkit"}, ServedBrowser.FIREFOX),
    ],
)
async def test_the_browser_is_the_one_that_was_named(
    store: Store, path: str, headers: dict[str, str], browser: ServedBrowser
) -> None:
    fleet = [ScriptedWorker(f"w-{each}", browser=each) for each in ServedBrowser]
    async with workers(store, *fleet), front_door(store) as door:
        socket = await door.connect(path, headers=headers)

        assert [each.browser for each in fleet if each.requests] == [browser]
        await socket.close()


async def test_the_default_browser_can_be_set(store: Store) -> None:
    worker = ScriptedWorker("w1", browser=ServedBrowser.FIREFOX)
    async with workers(store, worker), front_door(store, playwright_browser="firefox") as door:
        await (await door.connect()).close()

        assert len(worker.requests) == 1


@pytest.mark.parametrize("path", ["/?browser=opera", "/playwright/opera", "/playwright/opera/json"])
async def test_an_unknown_browser_is_refused_with_those_there_are(store: Store, path: str) -> None:
    async with front_door(store) as door:
        status, error, _ = await door.refusal(path)

        assert status == 400
        assert error["message"] == "There is no browser 'opera'; there are chromium, firefox, webkit"


async def test_who_comes_without_a_websocket_hears_how_to_connect(store: Store) -> None:
    async with front_door(store) as door:
        status, error, headers = await door.get("/playwright/firefox")

        assert status == 426
        assert (
            f'playwright.firefox.connect("ws://127.0.0.1:{door.port}/playwright/firefox")' in error["message"]
        )
        assert headers["Upgrade"] == "websocket"


@pytest.mark.parametrize("path", ["/json", "/playwright/json", "/playwright/firefox/json"])
async def test_clients_with_an_http_url_are_told_where_the_websocket_is(store: Store, path: str) -> None:
    async with front_door(store) as door:
        assert (await door.get(path))[:2] == (200, {"wsEndpointPath": "/"})


@pytest.mark.parametrize("page", ["http://evil.example", "http://localhost:3000", "null", "http://{host}"])
async def test_a_page_gets_no_browser(store: Store, page: str) -> None:
    # Not even one of this machine: the herd's own browsers show pages that nobody knows.
    worker = ScriptedWorker("w1")
    async with workers(store, worker), front_door(store) as door:
        status, error, _ = await door.refusal(headers={"Origin": page.format(host=f"127.0.0.1:{door.port}")})

        assert status == 403
        assert "allow_origins" in error["message"]
        assert worker.requests == []


async def test_a_page_of_a_configured_origin_gets_a_browser(store: Store) -> None:
    async with (
        workers(store, ScriptedWorker("w1")),
        front_door(store, allow_origins="https://tests.example") as door,
    ):
        socket = await door.connect(headers={"Origin": "https://tests.example"})

        await socket.send_str("hello")
        assert await socket.receive_str() == "hello"
        await socket.close()


# How it ends


async def test_the_workers_close_code_reaches_the_client(store: Store) -> None:
    async with workers(store, ScriptedWorker("w1")), front_door(store) as door:
        socket = await door.connect()
        await socket.send_str("bye")

        message = await socket.receive()

        assert (message.data, message.extra) == (4321, "so long")
        await eventually(lambda: is_active(store, w1=0))


async def test_the_clients_close_code_reaches_the_worker(store: Store) -> None:
    worker = ScriptedWorker("w1")
    async with workers(store, worker), front_door(store) as door:
        await (await door.connect()).close(code=4000)

        await eventually(lambda: worker.codes == [4000])


async def test_a_gateway_that_leaves_tells_both_sides_so(store: Store) -> None:
    worker = ScriptedWorker("w1")
    async with workers(store, worker), front_door(store, gateway_drain=1) as door:
        socket = await door.connect()
        draining = asyncio.create_task(door.gateway.drain())

        await socket.send_str("still served")
        assert await socket.receive_str() == "still served"
        message = await socket.receive()

        assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, 1001)
        await draining
        assert worker.codes == [1000], "the code with which aiohttp answers"
        await settles_at(store, w1=0)


async def test_a_client_that_dies_is_seen_by_the_worker_and_no_longer_counted(store: Store) -> None:
    worker = ScriptedWorker("w1")
    async with workers(store, worker), front_door(store) as door:
        socket = await door.connect()

        assert socket._response.connection is not None
        socket._response.connection.transport.abort()  # type: ignore[union-attr]

        await eventually(lambda: len(worker.codes) == 1)
        assert worker.codes[0] in (None, 1006)
        await eventually(lambda: is_active(store, w1=0))


async def test_a_worker_that_dies_is_seen_by_its_client_and_no_longer_counted(store: Store) -> None:
    worker = ScriptedWorker("w1")
    async with workers(store, worker), front_door(store) as door:
        socket = await door.connect()

        transport = worker.requests[0].transport
        assert transport is not None
        transport.abort()

        message = await socket.receive()
        assert message.type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
        await eventually(lambda: is_active(store, w1=0))


# Workers that do not take it


async def test_a_worker_that_does_not_answer_is_never_heard_of(store: Store) -> None:
    silent, good = ScriptedWorker("w1"), ScriptedWorker("w2")
    silent.answer = silent.stay_silent
    async with workers(store, silent, good), front_door(store, playwright_dial=1) as door:
        await set_lifetime(store, w1=10)  # So that it is tried first.
        sockets = [await door.connect() for _ in range(3)]

        assert len(good.requests) == 3
        # The others do not even try it: it is suspect until it has beaten again.
        assert len(silent.requests) == 1
        await eventually(lambda: is_active(store, w1=0, w2=3))
        for socket in sockets:
            await socket.close()


async def test_an_only_worker_that_failed_once_is_soon_tried_again(store: Store) -> None:
    worker = ScriptedWorker("w1")

    async def refuse_once(request: web.Request) -> web.StreamResponse:
        worker.answer = worker.echo
        return await worker.refuse(request)

    worker.answer = refuse_once
    async with workers(store, worker), front_door(store) as door:
        # It never beats: only its next client can show that it is well.
        socket = await door.connect()

        assert len(worker.requests) == 2
        await socket.close()
        await settles_at(store, w1=0)


async def test_a_worker_that_serves_again_is_trusted_again(store: Store) -> None:
    failures = PLAYWRIGHT_FAILURES("chromium")
    async with workers(store, ScriptedWorker("w1")), front_door(store) as door:
        await store.hset(failures, {"w1": 3})
        socket = await door.connect()
        await socket.close()

        await eventually(lambda: is_active(store, w1=0))
        assert await store.hgetall(failures) == {}


async def test_a_worker_that_refuses_is_never_heard_of(store: Store) -> None:
    bad, good = ScriptedWorker("w1"), ScriptedWorker("w2")
    bad.answer = bad.refuse
    async with workers(store, bad, good), front_door(store) as door:
        await set_lifetime(store, w1=10)
        socket = await door.connect()

        assert len(bad.requests) == 1
        await eventually(lambda: is_active(store, w1=0, w2=1))
        await socket.close()
        await eventually(lambda: is_active(store, w1=0, w2=0))


@pytest.mark.parametrize(
    "endpoint", ["ws://127.0.0.1:{}/gone", "nonsense", "ws://127.0.0.1:99999/", "ws://["]
)
async def test_a_worker_where_nobody_listens_is_never_heard_of(store: Store, endpoint: str) -> None:
    gone, good = ScriptedWorker("w1"), ScriptedWorker("w2")
    async with workers(store, gone, good), front_door(store) as door:
        await store.hset(WORKER("chromium", "w1"), {"wsEndpoint": endpoint.format(free_port())})
        await set_lifetime(store, w1=10)
        socket = await door.connect()

        await eventually(lambda: is_active(store, w1=0, w2=1))
        assert await store.hgetall(PLAYWRIGHT_FAILURES("chromium")) == {"w1": "1"}
        await socket.close()


async def test_an_endpoint_is_in_no_log_even_if_it_is_wrong(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with workers(store, ScriptedWorker("w1")), front_door(store, playwright_wait=1) as door:
        await store.hset(WORKER("chromium", "w1"), {"wsEndpoint": "http://127.0.0.1/secret-path"})
        _, error, _ = await door.refusal()

        logged = "".join(str(record.__dict__) for record in caplog.records)
        assert "its endpoint is not a ws:// or wss:// address" in logged
        assert "secret-path" not in logged + error["message"]


async def test_when_nobody_answers_the_client_hears_which_worker_was_tried_last(store: Store) -> None:
    bad = ScriptedWorker("w1")
    bad.answer = bad.refuse
    async with workers(store, bad), front_door(store, playwright_wait=1) as door:
        status, error, headers = await door.refusal()

        assert status == 503
        assert "answered 400, not 101" in error["message"]
        assert int(headers["Retry-After"]) > 0
        assert await check_registry(store) == {"w1": 0}


# Versions


async def test_a_version_that_nobody_speaks_is_refused_at_once_with_those_on_offer(store: Store) -> None:
    fleet = ScriptedWorker("w1", version="1.62"), ScriptedWorker("w2", version="1.9")
    async with workers(store, *fleet), front_door(store, playwright_wait=600) as door:
        status, error, _ = await door.refusal(headers={"User-Agent": "Playwright/1.65.0 (x64)"})

        assert status == 428
        assert "on offer: 1.9, 1.62" in error["message"]
        assert not any(each.requests for each in fleet)
        assert await check_registry(store) == {"w1": 0, "w2": 0}


async def test_a_client_gets_a_worker_of_its_version(store: Store) -> None:
    old, new = ScriptedWorker("w1", version="1.62"), ScriptedWorker("w2", version="1.64")
    async with workers(store, old, new), front_door(store) as door:
        for _ in range(3):
            await (await door.connect(headers={"User-Agent": "Playwright/1.64.1 (x64)"})).close()

        assert (len(old.requests), len(new.requests)) == (0, 3)


@pytest.mark.parametrize("agent", ["Playwright/1.64.0 (x64)", "Go-http-client/1.1"])
async def test_a_version_in_the_path_counts_like_the_clients_own(store: Store, agent: str) -> None:
    old, new = ScriptedWorker("w1", version="1.62"), ScriptedWorker("w2", version="1.64")
    async with workers(store, old, new), front_door(store) as door:
        await set_lifetime(store, w1=10)  # So that it comes first for whoever names no version.
        headers = {"User-Agent": agent}
        await (await door.connect("/playwright/chromium/playwright-1.64.1", headers=headers)).close()

        assert (len(old.requests), len(new.requests)) == (0, 1)


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/playwright/chromium/playwright-1.65.0", 428, "path asks for Playwright 1.65, but the client is"),
        ("/playwright/chromium/playwright-latest", 404, "/playwright/chromium/playwright-1.64.1"),
        ("/playwright/chromium/playwright-1.62.0/more", 404, "There is nothing at /playwright/chromium/"),
        ("/playwright/opera/playwright-1.62.0", 400, "There is no browser 'opera'"),
    ],
)
async def test_a_path_that_names_nothing_is_refused_in_words(
    store: Store, path: str, status: int, words: str
) -> None:
    worker = ScriptedWorker("w1")
    async with workers(store, worker), front_door(store) as door:
        answer, error, _ = await door.refusal(path)

        assert answer == status
        assert words in error["message"]
        assert worker.requests == []


async def test_what_a_worker_says_about_versions_reaches_the_client(store: Store) -> None:
    worker = ScriptedWorker("w1")
    worker.answer = worker.speak_another_version
    async with workers(store, worker), front_door(store) as door:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await door.connect()

        assert refused.value.status == 428
        await eventually(lambda: is_active(store, w1=0))
        assert len(worker.requests) == 1


async def test_a_refusal_that_reaches_its_client_takes_nothing_of_a_workers_lifetime(store: Store) -> None:
    worker = ScriptedWorker("w1", version="")
    worker.answer = worker.speak_another_version
    async with workers(store, worker), front_door(store) as door:
        status, words = await door.words(headers={"User-Agent": "Go-http-client/1.1"})

        assert (status, words) == (428, "Playwright version mismatch")
        await settles_at(store, w1=0)
        assert await lifetime(store) == {"chromium:w1": 0}


NEW = {"User-Agent": "Playwright/1.64.1 (x64)"}


async def test_after_a_428_the_next_worker_is_tried(store: Store) -> None:
    old, new = ScriptedWorker("w1", version=""), ScriptedWorker("w2", version="")
    old.answer = old.speak_another_version
    async with workers(store, old, new), front_door(store) as door:
        await set_lifetime(store, w1=10)  # So that it is tried first.
        for _ in range(3):
            await (await door.connect(headers=NEW)).close()

        assert len(new.requests) == 3
        assert len(old.requests) == 1, "its refusal is remembered"
        await settles_at(store, w1=0, w2=0)
        assert await lifetime(store) == {"chromium:w1": 10, "chromium:w2": 3}
        assert await store.hgetall(PLAYWRIGHT_FAILURES("chromium")) == {}, "it does nothing wrong"


async def test_a_428_reaches_the_client_in_the_workers_words_if_no_other_can_serve_it(store: Store) -> None:
    fleet = [ScriptedWorker(f"w{number}", version="") for number in range(3)]
    for each in fleet:
        each.answer = each.speak_another_version
    async with workers(store, *fleet), front_door(store, playwright_wait=600) as door:
        status, words = await door.words(headers=NEW)

        assert (status, words) == (428, "Playwright version mismatch")
        assert [len(each.requests) for each in fleet] == [1, 1, 1]
        # Who comes later hears it from the gateway.
        status, error, _ = await door.refusal(headers=NEW)
        assert status == 428
        assert "No chromium here speaks Playwright 1.64" in error["message"]
        await settles_at(store, w0=0, w1=0, w2=0)


async def test_a_client_that_was_refused_waits_for_a_worker_of_its_version(store: Store) -> None:
    silent, exact = ScriptedWorker("w1", version=""), ScriptedWorker("w2", version="1.64")
    silent.answer = silent.speak_another_version
    async with workers(store, silent, exact), front_door(store, playwright_concurrent=1) as door:
        first = await door.connect(headers=NEW)
        second = asyncio.create_task(door.connect(headers=NEW))
        await silent.came.wait()

        await first.close()

        await (await second).close()
        assert len(exact.requests) == 2


# Clients that do not wait for the answer


async def test_a_client_that_vanishes_in_the_handshake_is_not_counted(store: Store) -> None:
    worker = ScriptedWorker("w1")
    worker.answer = worker.stay_silent
    async with workers(store, worker), front_door(store, playwright_dial=600) as door:
        connecting = asyncio.create_task(door.connect())
        await worker.came.wait()
        assert await check_registry(store) == {"w1": 1}

        connecting.cancel()

        await eventually(lambda: is_active(store, w1=0))
        assert await store.zcard(PLAYWRIGHT_LEASES(ServedBrowser.CHROMIUM)) == 0
        assert await lifetime(store) == {"chromium:w1": 0}


async def test_connections_that_never_came_about_take_nothing_of_a_workers_lifetime(store: Store) -> None:
    silent, good = ScriptedWorker("w1"), ScriptedWorker("w2")
    silent.answer = silent.refuse
    async with workers(store, silent, good), front_door(store) as door:
        await set_lifetime(store, w1=10)
        await (await door.connect()).close()

        await settles_at(store, w1=0, w2=0)
        assert await lifetime(store) == {"chromium:w1": 10, "chromium:w2": 1}


async def test_clients_that_vanish_at_any_moment_leave_nothing_behind(store: Store) -> None:
    fleet = ScriptedWorker("w1"), ScriptedWorker("w2")
    async with workers(store, *fleet), front_door(store) as door:
        for turn in range(60):
            connecting = asyncio.create_task(door.connect())
            # Later and later: while it is read, picked, dialled, answered.
            done, _ = await asyncio.wait([connecting], timeout=turn * 0.0002)
            connecting.cancel()
            if done:
                await connecting.result().close()
        # Who comes last is let in last: by then, the gateway knows of them all.
        await (await door.connect()).close()

        await eventually(lambda: not door.clients and not any(each.serving for each in fleet))
        await settles_at(store, w1=0, w2=0)
        assert sum((await lifetime(store)).values()) <= sum(len(each.sockets) for each in fleet)
