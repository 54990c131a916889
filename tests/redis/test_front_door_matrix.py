"""Every path that the front door knows, asked through a real gateway with every kind of token. The paths are
the routes of the API and the examples beside the gateway's own patterns: a new one is in here by itself."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote
from uuid import UUID

import aiohttp
import pytest

from configs import make_config
from remuda.accounts.model import new_token
from remuda.accounts.tokens import Tokens
from remuda.base.ids import SessionId, new_id
from remuda.fleet.origin import Scope
from remuda.fleet.role import Life
from remuda.fleet.route import ANY_TOKEN, EVENT_STREAM, WEBSOCKET
from remuda.gateway import lookup
from remuda.gateway.destinations import EXAMPLES, PathExample
from remuda.gateway.role import Gateway
from remuda.grid.model import State
from remuda.grid.sessions import Sessions
from remuda.grid.wire import is_webdriver
from remuda.keyspace.grid import SESSION_STORAGE
from remuda.storage.directory import LocalDirectory
from remuda.storage.model import Owner, StorageId
from remuda.store import Store
from storages import running_storage, write_file
from waiting import eventually
from web_states import SessionWriter, all_routes, new_api, running, serving

GRAPHQL = quote("{ sessions { id } }")
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


ANY_TOKEN_PATHS = {route.path for route in all_routes() if route.scope == ANY_TOKEN}


def examples_of_routes() -> Sequence[PathExample]:
    """A request for each route of the API that needs a token."""
    named = {"node": "ranch", "orchestrator": "ranch", "path": "icon.svg"}
    found = []
    for route in all_routes():
        if route.scope is None:
            continue
        path = route.path.replace(":path}", "}").replace("/video/{name}", "/video/{session}.mp4")
        for part in path.split("{")[1:]:
            name = part.partition("}")[0]
            if name != "session":
                path = path.replace("{" + name + "}", named.get(name, "unknown"))
        query = f"?query={GRAPHQL}" if path == "/graphql" else ""
        is_upgrade = route.method == WEBSOCKET
        found.append(PathExample(path + query, "GET" if is_upgrade else route.method, is_upgrade))
    return found


def name_of(example: PathExample) -> str:
    return f"{WEBSOCKET if example.is_upgrade else example.method} {example.target.partition('?')[0]}"


SHARED = [each for each in EXAMPLES if each.target.startswith("/shared/")]
PROTECTED = [*(each for each in EXAMPLES if each not in SHARED), *examples_of_routes()]
NAMED_BROWSERS = [each for each in EXAMPLES if each.target.startswith("/cdp/{session}")]
"""A name that the account has not used is a new browser's, so these are not answered with 404."""
OF_A_SESSION = [each for each in PROTECTED if "{session}" in each.target and each not in NAMED_BROWSERS]
USAGE_PATHS = {route.path for route in all_routes() if route.scopes == {Scope.USAGE}}
FOR_USAGE = [each for each in examples_of_routes() if each.target in USAGE_PATHS]
FOR_ANY_TOKEN = [each for each in examples_of_routes() if each.target in ANY_TOKEN_PATHS]


class Herd:
    """A herd that asks for tokens, with a session of the account `own` that has an artifact."""

    def __init__(self, store: Store, url: str, session: SessionId, storage: StorageId) -> None:
        self._store = store
        self._url = url
        self._storage = storage
        self._tokens = Tokens(store)
        self._given = 0
        self.session = session

    async def ask(
        self, example: PathExample, token: str | None, *, session: str | None = None
    ) -> tuple[int, str]:
        """Status and text of the answer, in words that fit any session."""
        about = session or self.session
        target = example.target.replace("{session}", about).replace("{storage}", self._storage)
        headers = dict(UPGRADE) if example.is_upgrade else {}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        body = b"{}" if example.method == "POST" else None
        headers["Content-Type"] = "application/json"
        async with (
            aiohttp.ClientSession(self._url, headers=headers) as client,
            client.request(example.method, target, allow_redirects=False, data=body) as response,
        ):
            if response.status == 101:
                response.close()  # Else it waits for the other side to say something.
                return response.status, ""
            if response.content_type == EVENT_STREAM:
                return response.status, (await response.content.readline()).decode()
            return response.status, (await response.text()).replace(about, "<session>")

    async def ask_all(
        self, examples: Sequence[PathExample], token: str | None, *, session: str | None = None
    ) -> dict[str, tuple[int, str]]:
        """The same for many paths, by their names."""
        return {name_of(each): await self.ask(each, token, session=session) for each in examples}

    async def give(self, account: str, *scopes: Scope, lifetime: float | None = None) -> str:
        """A new token."""
        self._given += 1
        token, _ = await self._tokens.create(
            f"token-{self._given}", account=account, scopes=scopes or (Scope.USE,), lifetime=lifetime
        )
        return token

    async def revoke_last(self, account: str) -> None:
        """Revokes the token that was given last."""
        await self._tokens.revoke(f"token-{self._given}", account=account, keep_last_admin=False)

    async def is_untouched(self) -> bool:
        return await Sessions(self._store).state(self.session) is State.QUEUED


@pytest.fixture
async def herd(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Herd]:
    monkeypatch.setattr(lookup, "WAIT_FOR", 0.05)  # There is no manager, and none will come.
    api = new_api(store)
    async with serving(api), running_storage(store, tmp_path) as storage:
        await Life(store, [api])._announce()
        session = await SessionWriter(store, "own").queue()
        write_file(tmp_path, session, "video.mp4")
        await store.set(SESSION_STORAGE(session), storage.storage_id)
        LocalDirectory(tmp_path).note_account(Owner.parse(session), "own")
        async with gateway(store, tmp_path / "herd") as url:
            yield Herd(store, url, session, storage.storage_id)


@asynccontextmanager
async def gateway(store: Store, data: Path) -> AsyncIterator[str]:
    """The URL of a gateway that asks for tokens."""
    role = Gateway(store, make_config(port=0, data=data, auth="on", playwright_wait=1))
    async with running(role):
        serve = asyncio.create_task(role.serve(), name="gateway")
        try:
            yield f"http://{role.address}"
        finally:
            serve.cancel()
            await asyncio.gather(serve, return_exceptions=True)


async def test_no_path_opens_without_a_token_that_is_good_now(
    herd: Herd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.accounts.guesses.FREE", 10_000)  # So many wrong tokens would take hours.
    expired, revoked = await herd.give("own", lifetime=-1.0), await herd.give("own")
    known, _ = await herd.ask(PathExample("/api/sessions"), revoked)
    await herd.revoke_last("own")

    async def is_refused() -> bool:
        return (await herd.ask(PathExample("/api/sessions"), revoked))[0] == 401

    await eventually(is_refused)
    shown = {"none": None, "empty": "", "wrong": new_token(), "expired": expired, "revoked": revoked}
    answers = {
        (name_of(example), kind): await herd.ask(example, token)
        for example in PROTECTED
        for kind, token in shown.items()
    }
    in_w3c_form = {name_of(example): is_webdriver(example.target) for example in PROTECTED}

    assert known == 200
    assert {which: status for which, (status, _) in answers.items() if status != 401} == {}
    shapes = {which: "stacktrace" in text for which, (_, text) in answers.items()}
    assert [which for which in shapes if shapes[which] != in_w3c_form[which[0]]] == []
    assert await herd.is_untouched()


async def test_a_token_for_usage_alone_opens_no_session(herd: Herd) -> None:
    answers = await herd.ask_all(PROTECTED, await herd.give("own", Scope.USAGE))

    opened = {which for which, (status, text) in answers.items() if status != 403 or "scope" not in text}
    assert opened == {name_of(each) for each in (*FOR_ANY_TOKEN, *FOR_USAGE)}
    assert await herd.is_untouched()


async def test_another_accounts_session_is_one_that_never_was(herd: Herd) -> None:
    other = await herd.give("other")
    theirs = await herd.ask_all(OF_A_SESSION, other)
    missing = await herd.ask_all(OF_A_SESSION, other, session=new_id())

    assert theirs == missing
    assert await herd.is_untouched()


async def test_the_name_of_another_accounts_browser_is_as_free_as_any(herd: Herd) -> None:
    other, free = await herd.give("other"), new_id()
    theirs = await herd.ask_all(NAMED_BROWSERS, other)
    missing = await herd.ask_all(NAMED_BROWSERS, other, session=free)

    def plainly(answers: dict[str, tuple[int, str]], name: str) -> list[tuple[int, str]]:
        # As it is written in the id of a page; and tickets are signed for one name.
        texts = [(status, text.replace(UUID(name).hex.upper(), "")) for status, text in answers.values()]
        return [(status, re.sub(r"ticket=[^\"&]+", "", text)) for status, text in texts]

    assert plainly(theirs, herd.session) == plainly(missing, free)
    assert await herd.is_untouched()


async def test_operators_are_let_in_everywhere(herd: Herd) -> None:
    answers = await herd.ask_all(PROTECTED, await herd.give("ops", Scope.ADMIN))

    assert {which: status for which, (status, _) in answers.items() if status in (401, 403)} == {}


async def test_its_own_account_is_answered_as_operators_are(herd: Herd) -> None:
    reading = [each for each in OF_A_SESSION if each.method == "GET"]
    own = await herd.ask_all(reading, await herd.give("own"))
    operators = await herd.ask_all(reading, await herd.give("ops", Scope.ADMIN))
    missing = await herd.ask_all(reading, await herd.give("own"), session=new_id())

    assert {which: answer[0] for which, answer in own.items()} == {
        which: answer[0] for which, answer in operators.items()
    }
    assert [which for which in own if own[which] == missing[which]] == []


@pytest.mark.parametrize("example", [each for each in OF_A_SESSION if each.method != "GET"], ids=name_of)
async def test_its_own_account_may_do_what_it_likes(herd: Herd, example: PathExample) -> None:
    own = await herd.give("own")

    assert await herd.ask(example, own) != await herd.ask(example, own, session=new_id())


async def test_a_share_that_the_herd_has_not_signed_opens_nothing(herd: Herd) -> None:
    for token in (None, await herd.give("other"), await herd.give("ops", Scope.ADMIN)):
        answers = await herd.ask_all(SHARED, token)

        assert {status for status, _ in answers.values()} == {404}


async def test_a_share_is_read_without_a_token_and_by_any_page(herd: Herd) -> None:
    token = await herd.give("own")
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(herd._url) as client:
        path = f"/api/sessions/{herd.session}/artifacts/video.mp4/share"
        async with client.post(path, json={}, headers=headers) as made:
            share = await made.json()
        async with client.get(share["url"], headers={"Origin": "https://player.example"}) as answer:
            assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (200, "*")
        stored = f"/storage/{herd._storage}/{herd.session}/video.mp4"
        async with client.get(stored, headers={**headers, "Origin": "https://player.example"}) as answer:
            assert answer.status == 403
