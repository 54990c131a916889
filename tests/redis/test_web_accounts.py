"""The API of accounts, tokens, logins and the audit log."""

import asyncio
from collections.abc import AsyncIterator
from http.cookies import SimpleCookie
from typing import Any

import aiohttp
import msgspec
import pytest
from msgspec.structs import replace

from granted import give_token, id_of_token, revoke_token
from remuda.accounts import guesses
from remuda.accounts import http as accounts_http
from remuda.accounts.logins import Logins
from remuda.accounts.model import digest_of, new_token
from remuda.accounts.tokens import Tokens
from remuda.base import clock
from remuda.fleet.origin import EVERY_SCOPE, Origin, Scope
from remuda.fleet.relay.head import LOGIN_COOKIE
from remuda.grid.sessions import Sessions
from remuda.keyspace import grid
from remuda.keyspace.accounts import LOGIN, METRICS_ACCESS, TOKEN
from remuda.keyspace.fleet import USES
from remuda.store import Store
from web_states import SessionWriter, visiting

ANN = Origin(account="ops", token="ann", scopes=frozenset({Scope.ADMIN}), address="10.0.0.7")
DEADLINE = 20.0
OPEN = Origin(scopes=EVERY_SCOPE, address="127.0.0.1")
"""Where no token is needed."""


async def ask(
    client: aiohttp.ClientSession, method: str, path: str, body: Any = None, *, origin: Origin = ANN
) -> tuple[int, Any]:
    """Status and JSON of an answer to a request that the front door has passed on."""
    async with client.request(method, path, json=body, headers=dict(origin.headers())) as response:
        return response.status, msgspec.json.decode(await response.read())


async def audited(client: aiohttp.ClientSession) -> list[tuple[str, str, str]]:
    """Who did what to what, oldest first."""
    _, answer = await ask(client, "GET", "/api/audit")
    return [(each["token"], each["action"], each["subject"]) for each in answer["entries"]][::-1]


async def test_a_token_is_made_shown_once_listed_and_revoked(store: Store) -> None:
    async with visiting(store) as client:
        new = {"name": "ci", "account": "web", "scopes": ["use", "archive"], "expires": "90d"}
        made, created = await ask(client, "POST", "/api/tokens", new)
        _, listed = await ask(client, "GET", "/api/tokens")
        revoked = await ask(client, "DELETE", "/api/tokens/web/ci")
        _, after = await ask(client, "GET", "/api/tokens")

        token = created.pop("token")
        assert made == 200
        assert listed == {"tokens": [created]}
        assert (created["name"], created["account"], created["scopes"]) == ("ci", "web", ["archive", "use"])
        left = clock.parse_rfc3339(created["expiresAt"]) - clock.now()
        assert left == pytest.approx(90 * 86400, abs=60)
        assert revoked == (200, {"account": "web", "name": "ci", "ended": 0})
        assert after == {"tokens": []}
        assert not await store.exists(TOKEN(digest_of(token)))
        assert await audited(client) == [("ann", "token.create", "web/ci"), ("ann", "token.revoke", "web/ci")]


async def test_a_body_that_comes_after_its_token_was_revoked_changes_nothing(store: Store) -> None:
    await give_token(store, ANN.account, "admin", name=ANN.token)
    ann = replace(ANN, token_id=await id_of_token(store, ANN.account, ANN.token))
    is_answered = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b'{"name": "another", "account": "ops", '
        await revoke_token(store, ANN.account, ANN.token)
        await is_answered.wait()
        yield b'"scopes": ["admin"]}'

    async with visiting(store) as client:
        headers = dict(ann.headers())
        async with (
            asyncio.timeout(DEADLINE),
            client.post("/api/tokens", data=body(), headers=headers) as response,
        ):
            is_answered.set()

    assert response.status == 401
    assert await Tokens(store).of_all() == []


async def test_tokens_of_one_account_are_listed(store: Store) -> None:
    for account in ("web", "app"):
        await Tokens(store).create("ci", account=account, scopes={Scope.USE})
    async with visiting(store) as client:
        _, listed = await ask(client, "GET", "/api/tokens?account=app")
        status, unknown = await ask(client, "GET", "/api/tokens?account=nobody")

        assert [each["account"] for each in listed["tokens"]] == ["app"]
        assert (status, unknown["error"]["code"]) == (404, "lost")
        assert "the accounts are: app, web" in unknown["error"]["message"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"name": "ci"}, "account"),
        ({"name": "c i", "account": "web"}, "cannot be the name of a token"),
        ({"name": "ci", "account": "WEB"}, "cannot be the name of an account"),
        ({"name": "ci", "account": "web", "scopes": ["root"]}, "the scopes are"),
        ({"name": "ci", "account": "web", "expires": "soon"}, "not a duration"),
    ],
)
async def test_a_token_that_cannot_be_made_is_refused(store: Store, body: Any, message: str) -> None:
    async with visiting(store) as client:
        status, answer = await ask(client, "POST", "/api/tokens", body)

        assert (status, answer["error"]["code"]) == (400, "invalid_argument")
        assert message in answer["error"]["message"]
        assert await audited(client) == []


async def test_a_name_that_is_taken_is_a_conflict(store: Store) -> None:
    async with visiting(store) as client:
        await ask(client, "POST", "/api/tokens", {"name": "ci", "account": "web"})
        status, answer = await ask(client, "POST", "/api/tokens", {"name": "ci", "account": "web"})

        assert (status, answer["error"]["code"]) == (409, "already_exists")


async def test_an_admin_cannot_lock_everybody_out(store: Store) -> None:
    await Tokens(store).create("ann", account="ops", scopes={Scope.ADMIN})
    async with visiting(store) as client:
        status, answer = await ask(client, "DELETE", "/api/tokens/ops/ann")
        account_status, _ = await ask(client, "DELETE", "/api/accounts/ops")
        open_status, _ = await ask(client, "DELETE", "/api/tokens/ops/ann", origin=OPEN)

        assert (status, answer["error"]["code"]) == (409, "in_use")
        assert account_status == 409
        assert open_status == 200


async def test_limits_of_an_account_are_set_and_removed(store: Store) -> None:
    async with visiting(store) as client:
        _, first = await ask(client, "PATCH", "/api/accounts/web", {"sessions": 10, "rate": 60})
        _, second = await ask(client, "PATCH", "/api/accounts/web", {"rate": None})
        refused, _ = await ask(client, "PATCH", "/api/accounts/web", {"rate": -1})
        _, listed = await ask(client, "GET", "/api/accounts")

        assert first["limits"] == {"sessions": 10, "rate": 60}
        assert second["limits"] == {"sessions": 10, "rate": None}
        assert refused == 400
        assert listed == {"accounts": [second]}
        _, log = await ask(client, "GET", "/api/audit")
        assert [each["details"] for each in log["entries"]] == [{"rate": None}, {"sessions": 10, "rate": 60}]


async def test_an_account_with_sessions_is_deleted_only_with_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts_http, "SETTLED_AFTER", 0.0)
    await Tokens(store).create("ci", account="web", scopes={Scope.USE})
    session = await rider_of(store, account="web", token="ci")
    await store.zadd(USES("web"), {session: clock.now_ms() + 60_000})
    async with visiting(store) as client:
        refused, answer = await ask(client, "DELETE", "/api/accounts/web")
        deleted = await ask(client, "DELETE", "/api/accounts/web?end_sessions=true")

        assert (refused, answer["error"]["code"]) == (409, "in_use")
        assert deleted == (200, {"name": "web", "tokens": ["ci"], "ended": 1})
        assert await Sessions(store).last_words(session) == (
            "CLEFT",
            {"message": "The account web was deleted"},
        )


async def rider_of(store: Store, *, account: str, token: str) -> Any:
    session = await SessionWriter(store, account).queue()
    await store.hset(grid.SESSION_ORIGIN(session), {"token": token})
    return session


async def test_a_token_is_revoked_with_its_sessions_and_no_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts_http, "SETTLED_AFTER", 0.0)
    for name in ("ci", "agent"):
        await Tokens(store).create(name, account="web", scopes={Scope.USE})
    await Tokens(store).create("ci", account="app", scopes={Scope.USE})
    own = [await rider_of(store, account="web", token="ci") for _ in range(3)]
    others = [await rider_of(store, account=of, token=by) for of, by in (("web", "agent"), ("app", "ci"))]
    async with visiting(store) as client:
        _, answer = await ask(client, "DELETE", "/api/tokens/web/ci?end_sessions=true")

        assert answer["ended"] == 3
        assert set(await store.smembers(grid.SESSIONS_TERMINATED())) == set(own)
        assert set(await store.smembers(grid.SESSIONS_ACTIVE())) == set(others)
        cause = await Sessions(store).last_words(own[0])
        assert cause == ("CLEFT", {"message": "The token ci was revoked"})


async def test_the_sessions_of_a_revoked_token_go_on_by_themselves(store: Store) -> None:
    await Tokens(store).create("ci", account="web", scopes={Scope.USE})
    session = await rider_of(store, account="web", token="ci")
    async with visiting(store) as client:
        await ask(client, "DELETE", "/api/tokens/web/ci")

        assert await store.smembers(grid.SESSIONS_ACTIVE()) == [session]


@pytest.mark.parametrize(("scheme", "name"), [("http", "remuda_login"), ("https", "__Host-remuda_login")])
async def test_a_login_sets_a_cookie_that_no_script_and_no_other_site_can_use(
    store: Store, scheme: str, name: str
) -> None:
    token, _ = await Tokens(store).create("ann", account="ops", scopes={Scope.ADMIN})
    anonymous = Origin(account="", address="10.0.0.7", scheme=scheme, host="herd.example")
    async with visiting(store) as client:
        headers = dict(anonymous.headers())
        async with client.post("/api/login", json={"token": token}, headers=headers) as response:
            answer = await response.json()
        cookie = SimpleCookie(response.headers["Set-Cookie"])[name]

        assert (answer["account"], answer["token"], answer["scopes"]) == ("ops", "ann", ["admin"])
        assert token not in str(answer)
        assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "strict", "/")
        # What a browser asks of the second name, beside the path.
        assert (bool(cookie["secure"]), cookie["domain"]) == (scheme == "https", "")
        assert int(cookie["max-age"]) == 43200
        assert await store.hgetall(LOGIN(digest_of(cookie.value))) == {"token": digest_of(token)}
        assert await audited(client) == [("ann", "login", "ops/ann")]


async def test_repeated_logins_are_one_entry_of_the_audit_log(store: Store) -> None:
    token, _ = await Tokens(store).create("ci", account="web", scopes={Scope.USE})
    async with visiting(store) as client:
        await ask(client, "PATCH", "/api/accounts/web", {"sessions": 10})
        for _ in range(20):
            status, _ = await ask(client, "POST", "/api/login", {"token": token})
            assert status == 200

        assert await audited(client) == [("ann", "account.set", "web"), ("ci", "login", "web/ci")]


async def test_a_login_ends_the_one_before_in_the_same_browser(store: Store) -> None:
    token, _ = await Tokens(store).create("ann", account="ops", scopes={Scope.ADMIN})
    logins = Logins(store, lifetime=60)
    (first, _), (elsewhere, _) = [await logins.begin(token) for _ in range(2)]
    async with visiting(store) as client:
        shown = {"X-Remuda-Login": digest_of(first)}
        async with client.post("/api/login", json={"token": new_token()}, headers=shown) as response:
            assert response.status == 401
        assert await store.exists(LOGIN(digest_of(first)))

        async with client.post("/api/login", json={"token": token}, headers=shown) as response:
            assert response.status == 200

    assert not await store.exists(LOGIN(digest_of(first)))
    assert await store.exists(LOGIN(digest_of(elsewhere)))


async def test_a_login_with_a_wrong_token_is_refused(store: Store) -> None:
    async with visiting(store) as client:
        for token in (new_token(), "", "x" * 1000):
            async with client.post("/api/login", json={"token": token}) as response:
                answer = await response.json()

            assert (response.status, answer["error"]["code"]) == (401, "unauthorized")
            assert response.headers["WWW-Authenticate"].startswith("Basic ")
            assert "Set-Cookie" not in response.headers
        assert await audited(client) == []
        assert await store.hgetall(METRICS_ACCESS()) == {"login": "3"}


async def test_a_login_with_a_wrong_token_opens_no_dialog_of_the_browser(store: Store) -> None:
    of_browser = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)"}
    async with (
        visiting(store) as client,
        client.post("/api/login", json={"token": new_token()}, headers=of_browser) as response,
    ):
        assert response.status == 401
        assert response.headers["WWW-Authenticate"] == 'Bearer realm="remuda"'


async def test_who_guesses_at_the_login_is_slowed_down(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guesses, "FREE", 0)
    monkeypatch.setattr(guesses, "MAX_DELAYED_EACH", 0)
    guesser = Origin(account="", address="10.0.0.9")
    async with visiting(store) as client:
        token, _ = await Tokens(store).create("ann", account="ops", scopes={Scope.ADMIN})

        wrong, answer = await ask(client, "POST", "/api/login", {"token": new_token()}, origin=guesser)
        right, _ = await ask(client, "POST", "/api/login", {"token": token}, origin=guesser)

        assert (wrong, answer["error"]["code"]) == (429, "too_many_guesses")
        assert right == 200


@pytest.mark.parametrize("is_told_by_door", [True, False])
async def test_a_logout_ends_the_login_and_takes_the_cookie_away(store: Store, is_told_by_door: bool) -> None:
    token, _ = await Tokens(store).create("ann", account="ops", scopes={Scope.ADMIN})
    async with visiting(store) as client:
        async with client.post("/api/login", json={"token": token}) as response:
            value = SimpleCookie(response.headers["Set-Cookie"])[LOGIN_COOKIE].value
        client.cookie_jar.clear()
        shown = (
            {"X-Remuda-Login": digest_of(value)} if is_told_by_door else {"Cookie": f"{LOGIN_COOKIE}={value}"}
        )

        async with client.post("/api/logout", headers={**dict(ANN.headers()), **shown}) as response:
            answer = await response.json()

        assert answer == {"ended": True}
        removed = SimpleCookie(response.headers["Set-Cookie"])[LOGIN_COOKIE]
        assert (removed.value, removed["max-age"]) == ("", "0")
        assert not await store.exists(LOGIN(digest_of(value)))
        assert (await audited(client))[-1] == ("ann", "logout", "ops/ann")


async def test_whoami_tells_what_a_token_is_good_for(store: Store) -> None:
    ben = Origin(account="web", token="ci", scopes=frozenset({Scope.USE}), address="10.0.0.8")
    async with visiting(store) as client:
        await ask(client, "PATCH", "/api/accounts/web", {"sessions": 10})

        limits = {"sessions": 10, "rate": None}
        assert await ask(client, "GET", "/api/whoami", origin=ben) == (
            200,
            {"account": "web", "token": "ci", "scopes": ["use"], "limits": limits, "auth": True},
        )
        _, anybody = await ask(client, "GET", "/api/whoami", origin=OPEN)
        assert (anybody["account"], anybody["token"], anybody["auth"]) == ("default", "", False)


async def test_the_audit_log_is_read_in_pages(store: Store) -> None:
    async with visiting(store) as client:
        for number in range(5):
            await ask(client, "PATCH", f"/api/accounts/team-{number}", {})

        _, first = await ask(client, "GET", "/api/audit?limit=3")
        _, second = await ask(client, "GET", f"/api/audit?limit=3&before={first['cursor']}")
        _, later = await ask(client, "GET", f"/api/audit?after={first['entries'][1]['id']}")
        wrong, _ = await ask(client, "GET", "/api/audit?before=x")

        assert [each["subject"] for each in first["entries"]] == ["team-4", "team-3", "team-2"]
        assert [each["subject"] for each in second["entries"]] == ["team-1", "team-0"]
        assert second["cursor"] is None
        assert [each["subject"] for each in later["entries"]] == ["team-4"]
        assert wrong == 400
