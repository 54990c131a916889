"""Every route, asked by every kind of client. The routes come from the tables that the API is made of: a new
route is in here by itself, and if it declares no scope, it is for operators."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
import pytest

from credentials import OPERATOR, herd_headers
from granted import id_of_token
from remuda.accounts.tokens import Tokens
from remuda.base.errors import AlreadyExists, Unauthorized
from remuda.base.ids import SessionId, new_id
from remuda.fleet.origin import EVERY_SCOPE, Origin, Scope
from remuda.fleet.route import EVENT_STREAM, WEBSOCKET, Route
from remuda.grid.model import State
from remuda.grid.sessions import Sessions
from remuda.grid.wire import is_webdriver
from remuda.keyspace import grid
from remuda.metering.model import Level
from remuda.store import Store
from web_states import SessionWriter, all_routes, new_api, orchestrator, running, serving

ROUTES = all_routes()
PROTECTED = [route for route in ROUTES if route.scope is not None]
# Where a signature may stand in for a token: tests/redis/test_metering_http.py has what these answer.
SIGNED = {f"/{level}" for level in ("", *Level)}
PUBLIC = [route for route in ROUTES if route.scope is None and route.path not in SIGNED]
OF_A_SESSION = [route for route in PROTECTED if "{session}" in route.path or route.path == "/video/{name}"]
FOR_ACCOUNTS = [route for route in PROTECTED if Scope.USE in route.scopes and route not in OF_A_SESSION]
FOR_OPERATORS = [route for route in PROTECTED if route.scopes == {Scope.ADMIN}]

STRANGER = Origin(account="", address="10.0.0.9")
OWN = Origin(account="own", address="10.0.0.8", token="ci", scopes=frozenset({Scope.USE}))
OTHER = Origin(account="other", address="10.0.0.9", token="ci", scopes=frozenset({Scope.USE}))

SECRET_NAME = "only-its-account-knows-this"
GRAPHQL = """{ grid { sessionQueueSize } nodesInfo { nodes { sessions { id capabilities } } }
    sessionsInfo { sessions { id capabilities } sessionQueueRequests }
    sessions { id metadata { value } capabilities { requested actual } } }"""
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
# What differs between two answers that say the same.
_NO_MATTER = ("date", "content-length", "etag")


def name_of(route: Route) -> str:
    return f"{route.method} {route.path}"


@dataclass(frozen=True)
class Answered:
    """What a client is answered."""

    status: int
    headers: Mapping[str, str]
    body: str

    def about(self, session: str) -> "Answered":
        """The same, with whatever it says of this session in words that fit any."""
        headers = {name: value.replace(session, "<session>") for name, value in self.headers.items()}
        return Answered(self.status, headers, self.body.replace(session, "<session>"))


class Herd:
    """A herd with two sessions of the account `own`, one that runs and one that waits."""

    def __init__(self, store: Store, url: str, sessions: tuple[SessionId, SessionId]) -> None:
        self._store = store
        self._url = url
        self.sessions = sessions

    async def ask(self, asker: Origin, route: Route, *, session: str | None = None) -> Answered:
        """What this client is answered by a route, about the session that runs or another one."""
        path, options = self._request(route, session or self.sessions[0])
        token_id = await id_of_token(self._store, asker.account, asker.token) if asker.token else ""
        headers = await herd_headers(self._store, msgspec.structs.replace(asker, token_id=token_id))
        if route.method == WEBSOCKET:
            headers |= UPGRADE
        method = "GET" if route.method == WEBSOCKET else route.method
        async with (
            aiohttp.ClientSession(self._url, headers=headers) as client,
            client.request(method, path, allow_redirects=False, **options) as response,
        ):
            return Answered(response.status, _lasting(response.headers), await _read(response))

    def _request(self, route: Route, session: str) -> tuple[str, Mapping[str, Any]]:
        named = {
            "session": session,
            "name": f"{session}.mp4" if route.path.startswith("/video/") else "video.mp4",
            "orchestrator": "ranch",
            "node": "ranch",
            "path": "icon.svg",
        }
        path = route.path.replace(":path}", "}")
        for part in path.split("{")[1:]:
            name = part.partition("}")[0]
            path = path.replace("{" + name + "}", quote(named.get(name, "unknown")))
        if route.path == "/graphql":
            return (path, {"json": {"query": GRAPHQL}} if route.body else {"params": {"query": GRAPHQL}})
        return path, {"json": {}} if route.body else {}

    async def states(self) -> list[State | None]:
        """How the sessions are."""
        return [await Sessions(self._store).state(each) for each in self.sessions]


def _lasting(headers: Mapping[str, str]) -> Mapping[str, str]:
    return {name.lower(): value for name, value in headers.items() if name.lower() not in _NO_MATTER}


async def _read(response: aiohttp.ClientResponse) -> str:
    """The body; of a stream its first event, since it has no end."""
    if not response.headers.get("Content-Type", "").startswith(EVENT_STREAM):
        return (await response.read()).decode()
    async for line in response.content:
        if line.startswith(b"data: "):
            return line.decode()
    return ""


@asynccontextmanager
async def open_herd(store: Store) -> AsyncIterator[Herd]:
    async with running(orchestrator(store, slots=2)), serving(new_api(store)) as url:
        writer = SessionWriter(store, "own")
        runs = await writer.serve(browserName="chrome", **{"se:name": SECRET_NAME})
        waits = await writer.queue(browserName="firefox", **{"se:name": SECRET_NAME})
        storage = new_id()
        video = {
            "url": f"/storage/{storage}/{runs}/video.m3u8",
            "file": f"/storage/{storage}/{runs}/video.mp4",
        }
        actual = msgspec.json.encode({"browserName": "chrome", "remuda:video": video})
        await store.hset(grid.SESSION_CAPABILITIES(runs), {"actual": actual})
        await store.set(grid.SESSION_STORAGE(runs), storage)
        for each in (OWN, OTHER):  # A stream ends with the token that opened it.
            with suppress(AlreadyExists):
                await Tokens(store).create(each.token, account=each.account, scopes=each.scopes)
        yield Herd(store, url, (runs, waits))


@pytest.mark.parametrize("route", PROTECTED, ids=name_of)
async def test_without_a_token_every_route_asks_for_one_in_the_form_of_its_path(
    store: Store, route: Route
) -> None:
    async with open_herd(store) as herd:
        answer = await herd.ask(STRANGER, route)

        assert answer.status == 401
        assert "Bearer" in answer.headers["www-authenticate"]
        face = route.error_face or (
            Unauthorized.webdriver_face if is_webdriver(route.path) else Unauthorized.api_face
        )
        assert msgspec.json.decode(answer.body) == face(Unauthorized())
        assert await herd.states() == [State.ALIVE, State.QUEUED]


@pytest.mark.parametrize("route", PUBLIC, ids=name_of)
async def test_what_needs_no_token_answers_everybody(store: Store, route: Route) -> None:
    async with open_herd(store) as herd:
        for asker in (STRANGER, OWN, OPERATOR):
            assert (await herd.ask(asker, route)).status not in (401, 403)


@pytest.mark.parametrize("route", PROTECTED, ids=name_of)
async def test_a_token_that_is_good_for_something_else_is_told_which_scope_is_missing(
    store: Store, route: Route
) -> None:
    others = EVERY_SCOPE - route.scopes - {Scope.ADMIN}
    if route.scopes == EVERY_SCOPE:
        return  # Every token will do.
    async with open_herd(store) as herd:
        for scope in others:
            asker = Origin(account="own", address="10.0.0.8", token="ci", scopes=frozenset({scope}))
            answer = await herd.ask(asker, route)

            assert answer.status == 403
            assert all(f"`{each}`" in answer.body for each in route.scopes)
            assert "scope" in answer.body
        assert await herd.states() == [State.ALIVE, State.QUEUED]


@pytest.mark.parametrize("route", OF_A_SESSION, ids=name_of)
async def test_to_another_account_a_session_is_one_that_never_was(store: Store, route: Route) -> None:
    async with open_herd(store) as herd:
        never = new_id()
        theirs = await herd.ask(OTHER, route)
        missing = await herd.ask(OTHER, route, session=never)

        assert theirs.about(herd.sessions[0]) == missing.about(never)
        assert SECRET_NAME not in theirs.body
        assert await herd.states() == [State.ALIVE, State.QUEUED]


@pytest.mark.parametrize("route", FOR_ACCOUNTS, ids=name_of)
async def test_nothing_of_one_account_is_shown_to_another(store: Store, route: Route) -> None:
    async with open_herd(store) as herd:
        answer = await herd.ask(OTHER, route)

        assert answer.status not in (401, 403)
        for secret in (*herd.sessions, SECRET_NAME, "10.0.0.7", "selenium/4.27.0"):
            assert secret not in answer.body
        assert await herd.states() == [State.ALIVE, State.QUEUED]


@pytest.mark.parametrize("route", OF_A_SESSION, ids=name_of)
async def test_its_own_account_and_operators_are_answered_alike(store: Store, route: Route) -> None:
    async with open_herd(store) as herd:
        own = await herd.ask(OWN, route)
    async with open_herd(store) as herd:
        operators = await herd.ask(OPERATOR, route)

    assert own.status < 400
    assert own.status == operators.status


@pytest.mark.parametrize("route", FOR_OPERATORS, ids=name_of)
async def test_operators_are_let_in_everywhere(store: Store, route: Route) -> None:
    async with open_herd(store) as herd:
        assert (await herd.ask(OPERATOR, route)).status not in (401, 403)


LISTS = ("/api/sessions", "/api/overview", "/api/live", "/graphql", "/status", "/se/grid/distributor/status")


@pytest.mark.parametrize("route", [each for each in ROUTES if each.path in LISTS], ids=name_of)
async def test_an_account_finds_its_own_in_every_list(store: Store, route: Route) -> None:
    async with open_herd(store) as herd:
        for asker in (OWN, OPERATOR):
            assert herd.sessions[0] in (await herd.ask(asker, route)).body


@pytest.mark.parametrize(
    "path", ["/nowhere", "/api/nowhere", "/wd/hub/nowhere", "/status/", "/api/overview/"]
)
@pytest.mark.parametrize("method", ["GET", "PUT", WEBSOCKET])
async def test_without_a_token_a_path_that_does_not_exist_looks_like_one_that_does(
    store: Store, path: str, method: str
) -> None:
    async with open_herd(store) as herd:
        known = next(route for route in ROUTES if route.path == "/api/roles")
        nowhere = Route(method, path, "", known.handler, "")

        assert (await herd.ask(STRANGER, nowhere)).status == 401


async def test_a_person_without_a_token_is_shown_a_page_to_log_in(store: Store) -> None:
    async with open_herd(store) as herd:
        headers = {**await herd_headers(store, STRANGER), "Accept": "text/html,*/*;q=0.8"}
        async with aiohttp.ClientSession(herd._url, headers=headers) as client:
            for path in ("/", "/ui", "/api/docs", "/nowhere"):
                async with client.get(path) as page:
                    assert page.status == 401
                    assert page.headers["WWW-Authenticate"] == 'Bearer realm="remuda"'
                    assert page.headers["Cache-Control"] == "no-store"
                    assert 'type="password"' in await page.text()
            for part in ("login.js", "login.css", "style.css", "icon.svg"):
                async with client.get(f"/static/{part}") as file:
                    assert file.status == 200
