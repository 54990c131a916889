"""Who gets a browser of its own, what its worker is told, and how long a connection may last."""

import json
from typing import Any
from urllib.parse import parse_qs, urlencode

import aiohttp
import pytest
from aiohttp import web

from registered_workers import active, check_registry, lifetime
from remuda.playwright.model import ServedBrowser
from remuda.store import Store
from scripted_workers import ScriptedWorker, front_door, workers
from waiting import eventually

OPTIONS = "x-playwright-launch-options"
MULE = {"args": ["--user-agent=Mule"]}
# As @playwright/test 1.64 sends them, whatever its user has configured.
OF_THE_RUNNER = {"handleSIGINT": False, "tracesDir": "/t", "artifactsDir": "/a", "headless": True}


def fleet() -> tuple[ScriptedWorker, ScriptedWorker]:
    """A worker whose clients share a browser, and one with a browser for each."""
    return ScriptedWorker("shared"), ScriptedWorker("own", browser=ServedBrowser.CHROMIUM_OWN)


@pytest.mark.parametrize(
    ("path", "headers", "told"),
    [
        ("/?own=true", {}, ({}, [])),
        ("/playwright/chromium?own=true", {}, ({}, [])),
        ("/", {OPTIONS: json.dumps(MULE)}, (MULE, [])),
        (f"/?{urlencode({'launch-options': json.dumps(MULE)})}", {}, (MULE, [])),
        ("/", {"x-playwright-proxy": "*.example"}, ({}, ["*.example"])),
        ("/?proxy=*", {OPTIONS: json.dumps(OF_THE_RUNNER)}, ({}, ["*"])),
    ],
)
async def test_who_asks_for_it_gets_a_browser_of_its_own(
    store: Store, path: str, headers: dict[str, str], told: Any
) -> None:
    shared, own = fleet()
    async with workers(store, shared, own), front_door(store) as door:
        socket = await door.connect(path, headers=headers)

        assert shared.requests == []
        (seen,) = own.requests
        said = parse_qs(seen.query_string)
        assert (json.loads(said["launch-options"][0]), said.get("proxy", [])) == told
        assert seen.path == own.path
        # It counts as a place, as any other.
        assert await active(store) == {"chromium:shared": 0, "chromium-own:own": 1}
        await socket.close()
        await eventually(lambda: is_active(store, 0))


async def is_active(store: Store, connections: int) -> bool:
    return (await active(store))["chromium-own:own"] == connections


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/", {}),
        ("/?own=false", {}),
        ("/?own=", {OPTIONS: json.dumps(OF_THE_RUNNER)}),
        ("/", {OPTIONS: "", "x-playwright-proxy": ""}),
    ],
)
async def test_everybody_else_shares_one(store: Store, path: str, headers: dict[str, str]) -> None:
    shared, own = fleet()
    async with workers(store, shared, own), front_door(store) as door:
        await (await door.connect(path, headers=headers)).close()

        assert (len(shared.requests), len(own.requests)) == (1, 0)
        assert shared.requests[0].query_string == ""


async def test_all_can_be_given_one_of_their_own(store: Store) -> None:
    shared, own = fleet()
    async with workers(store, shared, own), front_door(store, playwright_isolation="own") as door:
        await (await door.connect()).close()
        status, error, _ = await door.refusal("/?own=false")

        assert (len(shared.requests), len(own.requests)) == (0, 1)
        assert status == 400
        assert "playwright_isolation" in error["message"]


@pytest.mark.parametrize(
    ("path", "headers", "named"),
    [
        ("/", {OPTIONS: '{"args": ["--zygote-cmd-prefix=/bin/sh"]}'}, "--zygote-cmd-prefix"),
        ("/", {OPTIONS: '{"env": {"LD_PRELOAD": "/x.so"}}'}, "LD_PRELOAD"),
        ("/?launch-options=nonsense", {}, "not valid JSON"),
        ("/?own=perhaps", {}, "'own' is 'perhaps'"),
        ("/?own=false", {"x-playwright-proxy": "*"}, "expose_network"),
        ("/?own=false", {OPTIONS: json.dumps(MULE)}, "launch options"),
        ("/?proxy=*", {OPTIONS: '{"proxy": {"server": "http://p:1"}}'}, "expose_network"),
    ],
)
async def test_what_cannot_be_honoured_is_refused_before_anybody_waits(
    store: Store, path: str, headers: dict[str, str], named: str
) -> None:
    async with front_door(store) as door:
        status, error, _ = await door.refusal(path, headers=headers)

        assert status == 400
        assert named in error["message"]


async def test_a_worker_that_cannot_honour_an_option_says_so_to_the_client(store: Store) -> None:
    _, own = fleet()

    async def refuse(request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"message": "no channel 'msedge' here"}}, status=400)

    own.answer = refuse
    async with workers(store, own), front_door(store) as door:
        status, error, _ = await door.refusal(headers={OPTIONS: '{"channel": "msedge"}'})

        assert (status, error["message"]) == (400, "no channel 'msedge' here")
        await eventually(lambda: is_active(store, 0))
        assert len(own.requests) == 1
        assert await lifetime(store) == {"chromium-own:own": 0}


async def test_they_wait_in_a_line_of_their_own(store: Store) -> None:
    shared, own = fleet()
    async with workers(store, shared, own), front_door(store, playwright_concurrent=1) as door:
        first = await door.connect("/?own=true")
        async with front_door(store, playwright_concurrent=1, playwright_wait=1) as hasty:
            status, error, _ = await hasty.refusal("/?own=true")
            await (await hasty.connect("/")).close()

        assert status == 503
        assert "chromium of one's own" in error["message"]
        await first.close()
        await (await door.connect("/?own=true")).close()


async def test_without_a_worker_the_client_hears_which_one_to_start(store: Store) -> None:
    async with workers(store, fleet()[0]), front_door(store, playwright_wait=1) as door:
        _, error, _ = await door.refusal("/?own=true")

        assert "`remuda run worker --browser chromium --isolation own` starts a worker" in error["message"]


# Limits


@pytest.mark.parametrize("option", ["playwright_timeout", "playwright_idle"])
async def test_a_connection_over_its_limit_ends_with_the_reason(store: Store, option: str) -> None:
    shared, _ = fleet()
    limits: dict[str, Any] = {option: 1}
    async with workers(store, shared), front_door(store, **limits) as door:
        socket = await door.connect()
        await socket.send_str("hello")
        assert await socket.receive_str() == "hello"

        message = await socket.receive(timeout=20)

        assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, 1001)
        assert (
            message.extra
            == {
                "playwright_timeout": "The connection has lasted 1 s, which is the limit",
                "playwright_idle": "The client has been silent for 1 s, which is the limit",
            }[option]
        )
        await socket.close()
        await eventually(lambda: door.clients == 0)
        assert await check_registry(store) == {"shared": 0}
