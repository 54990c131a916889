"""The front door where tokens are needed: who may come in, and what each sees."""

import asyncio
import base64
import re
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import aiohttp
import pytest

from granted import give_token, id_of_token, revoke_token
from relaying import Line, Upstream, say_ok
from remuda.accounts import guesses
from remuda.accounts.access import Access
from remuda.accounts.model import COOKIE_PREFIX, digest_of, new_token
from remuda.accounts.tickets import Tickets
from remuda.base import clock
from remuda.base.ids import SessionId, new_id
from remuda.fleet.origin import Origin, Scope
from remuda.fleet.relay import Address
from remuda.fleet.relay.farewell import going_away
from remuda.fleet.secret import HerdSecret
from remuda.gateway.lookup import RedisDirectory
from remuda.grid.model import State
from remuda.grid.omission import encode_request
from remuda.grid.sessions import Sessions
from remuda.keyspace import fleet, grid
from remuda.keyspace.accounts import LOGIN, METRICS_ACCESS
from remuda.playwright.model import ServedBrowser
from remuda.playwright.revoked import end_connections
from remuda.store import Store
from remuda.store.commands import stream_entries
from scripted_workers import DEADLINE, UPGRADE, Door, ScriptedWorker, front_door, workers
from waiting import eventually

STORAGE = "9d3f0f36-52c8-4d3e-9a55-6e6fa9e3a001"
SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"


class Herd:
    """A front door with auth on, and a scripted process behind it for every role."""

    def __init__(self, store: Store, door: Door, behind: Upstream, address: Address) -> None:
        self.store = store
        self.door = door
        self.behind = behind
        self._address = address

    async def session(self, account: str, session: str = "") -> SessionId:
        """A session of the account, whose node listens."""
        session = SessionId(session or new_id())
        origin = Origin(address="192.0.2.7", account=account)
        sessions = Sessions(self.store)
        requested = encode_request(({},))
        await sessions.create(session, requested=requested, origin=origin, user_agent="test")
        upstream: dict[str, str | int] = {"host": self._address.host, "port": self._address.port}
        await sessions.open(session, upstream={**upstream, "driverSessionID": "d"}, actual={})
        await self.store.hset(grid.SESSION_STATUS(session), {State.ALIVE.stamp: clock.rfc3339()})
        return session

    async def ask(
        self, path: str, token: str = "", *, method: str = "GET", **headers: str
    ) -> tuple[int, str, dict[str, str]]:
        """Status, body and headers, but for those that change with time."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            given["Authorization"] = f"Bearer {token}"
        url = f"http://127.0.0.1:{self.door.port}{path}"
        async with (
            aiohttp.ClientSession() as web,
            web.request(method, url, headers=given, timeout=aiohttp.ClientTimeout(DEADLINE)) as response,
        ):
            return response.status, await response.text(), dict(response.headers)

    async def status(self, path: str, token: str = "", **options: str) -> int:
        return (await self.ask(path, token, **options))[0]

    async def upgrade(self, path: str, token: str = "", **headers: str) -> int:
        """The status of the answer to a WebSocket."""
        async with self.websocket(path, token, **headers) as (status, _):
            return status

    @asynccontextmanager
    async def websocket(
        self, path: str, token: str = "", **headers: str
    ) -> AsyncIterator[tuple[int, asyncio.StreamReader]]:
        """The status of the answer to a WebSocket, and what comes after its head."""
        given = UPGRADE | headers | ({"Authorization": f"Bearer {token}"} if token else {})
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        reader, writer = await asyncio.open_connection("127.0.0.1", self.door.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}\r\n".encode())
        async with asyncio.timeout(DEADLINE):
            head = await reader.readuntil(b"\r\n\r\n")
        try:
            yield int(head.split()[1]), reader
        finally:
            writer.close()

    async def refusals(self, reason: str) -> int:
        return int(await self.store.hget(METRICS_ACCESS(), reason) or 0)


def reply(line: Line) -> None:
    if b"\r\nUpgrade: websocket\r\n" in line.received:
        line.transport.write(SWITCHING)
    else:
        say_ok(line)


@asynccontextmanager
async def open_herd(store: Store) -> AsyncIterator[Herd]:
    behind = Upstream()
    behind.reply = reply
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(behind.listening())
        now = clock.rfc3339()
        for name, role in (("api", new_id()), ("storage", STORAGE)):
            record = {"name": name, "address": str(address), "startedAt": now}
            await store.hset(fleet.ROLE(role), record)
            await store.zadd(fleet.ROLES(), {role: clock.now()})
        await store.sadd(grid.MANAGERS(), "m")
        await store.hset(grid.MANAGER("m"), {"host": address.host, "port": address.port})
        await store.set(grid.MANAGER_HEARTBEAT("m"), 1)
        data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="herd-")))
        door = await stack.enter_async_context(front_door(store, auth="on", data=data))
        yield Herd(store, door, behind, address)


@pytest.fixture
async def herd(store: Store) -> AsyncIterator[Herd]:
    async with open_herd(store) as found:
        yield found


# Showing a token


async def test_a_token_can_be_shown_in_every_way(herd: Herd) -> None:
    token, session = await give_token(herd.store, "ranch"), await herd.session("ranch")
    path = f"/session/{session}/url"

    assert await herd.status(path, token) == 200
    assert await herd.status(f"{path}?token={token}") == 200
    basic = base64.b64encode(f"any:{token}".encode()).decode()
    assert await herd.status(path, Authorization=f"Basic {basic}") == 200
    assert await herd.upgrade(f"/session/{session}/se/bidi?token={token}") == 101


async def test_no_process_behind_the_door_sees_a_token(herd: Herd) -> None:
    token, session = await give_token(herd.store, "ranch"), await herd.session("ranch")
    paths = (f"/session/{session}/url", "/api/sessions", f"/storage/{STORAGE}/{session}/a.log", "/status")

    for path in paths:
        assert await herd.status(path, token) == 200
        assert await herd.status(f"{path}?token={token}&a=b") == 200
        assert await herd.status(path, token, Cookie="remuda_login=rmdc_x; a=b") == 200

    assert token.encode() not in herd.behind.received
    assert b"rmdc_x" not in herd.behind.received
    assert herd.behind.received.count(b"?a=b HTTP") == len(paths)


async def test_whoever_serves_a_request_learns_whose_it_is(herd: Herd) -> None:
    token = await give_token(herd.store, "ranch", "use", "usage", name="robot")

    await herd.status("/api/sessions", token, X_Remuda_Account="rich", X_Remuda_Scopes="admin")

    sent = herd.behind.received
    assert re.findall(rb"X-Remuda-(?:Account|Token|Scopes): (.*)\r\n", sent) == [
        b"ranch",
        b"robot",
        b"usage use",
    ]


async def test_the_api_gets_requests_without_a_token_and_decides_itself(herd: Herd) -> None:
    assert await herd.status("/login") == 200

    assert re.findall(rb"X-Remuda-(?:Account|Token|Scopes): ?(.*)\r\n", herd.behind.received) == [b""] * 3


async def test_a_browser_that_is_logged_in_shows_its_cookie(herd: Herd) -> None:
    token, cookie = await give_token(herd.store, "ranch"), new_token(COOKIE_PREFIX)
    await herd.store.hset(LOGIN(digest_of(cookie)), {"token": digest_of(token)})
    await herd.store.expire(LOGIN(digest_of(cookie)), 60)
    session = await herd.session("ranch")

    assert await herd.status(f"/session/{session}/url", Cookie=f"remuda_login={cookie}") == 200
    await herd.status("/api/sessions", Cookie=f"remuda_login={cookie}")
    assert f"X-Remuda-Login: {digest_of(cookie)}\r\n".encode() in herd.behind.received


async def test_a_login_that_is_over_counts_as_none(herd: Herd) -> None:
    cookie = f"remuda_login={new_token(COOKIE_PREFIX)}"

    assert await herd.status("/", Cookie=cookie) == 200
    assert await herd.status("/session", method="POST", Cookie=cookie) == 401


async def test_a_token_is_no_cookie(herd: Herd) -> None:
    token = await give_token(herd.store, "ranch")

    assert await herd.status("/session", method="POST", Cookie=f"remuda_login={token}") == 401


# Without a right token


CLOSED = [
    ("POST", "/session"),
    ("POST", "/wd/hub/session"),
    ("GET", "/session"),
    ("GET", "/session/nonsense/url"),
    ("GET", f"/session/{STORAGE}/url"),
    ("DELETE", f"/session/{STORAGE}"),
    ("GET", f"/download/{STORAGE}/a.bin"),
    ("GET", f"/clipboard/{STORAGE}"),
    ("GET", f"/storage/{STORAGE}/{STORAGE}/a.log"),
    ("GET", f"/storage/{STORAGE}/job_1/a.warc.gz"),
    ("GET", "/json/version"),
    ("GET", "/json/protocol"),
    ("PUT", "/json/new"),
    ("GET", f"/cdp/{STORAGE}/json/version"),
    ("GET", "/playwright"),
    ("GET", "/json"),
]


@pytest.mark.parametrize(("method", "path"), CLOSED)
async def test_without_a_token_nothing_but_the_api_answers(herd: Herd, method: str, path: str) -> None:
    status, body, headers = await herd.ask(path, method=method)

    assert status == 401
    assert "A token is needed" in body
    # Java's HttpClient, and so Selenium's, reads no challenge but the first, and answers to Basic only.
    assert headers["WWW-Authenticate"] == 'Basic realm="remuda", Bearer realm="remuda"'
    assert not herd.behind.lines


@pytest.mark.parametrize(
    "path", ["/", "/playwright/chromium", "/session", "/cdp", f"/session/{STORAGE}/se/cdp"]
)
async def test_a_websocket_without_a_token_is_told_so_before_the_upgrade(herd: Herd, path: str) -> None:
    status, body, _ = await herd.ask(path, **UPGRADE)

    assert status == 401
    assert "A token is needed" in body


@pytest.mark.parametrize(("method", "path"), [*CLOSED, ("GET", "/api/sessions"), ("GET", "/")])
async def test_a_wrong_token_is_refused_everywhere(herd: Herd, method: str, path: str) -> None:
    status, body, _ = await herd.ask(path, new_token(), method=method)

    assert status == 401
    assert "not valid" in body
    assert not herd.behind.lines


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode("latin-1")).decode()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda token: ("", f"Bearer {token}x"),
        lambda token: ("", f"Bearer {token}{'x' * 50_000}"),
        lambda token: ("", f"Bearer {token} {token}"),
        lambda token: ("", f"Bearer {token.upper()}"),
        lambda token: ("", f"Digest {token}"),
        lambda token: ("", basic(f"any:more:{token}")),
        lambda token: ("", basic(f"any:{token}\0")),
        lambda token: ("", basic(token)),
        lambda token: (f"?token={token}%00", ""),
        lambda token: (f"?token=&token={token}", ""),
        lambda token: (f"?token={token}", f"Bearer {new_token()}"),
        lambda token: (f"?ticket={token}", ""),
        lambda token: (f"/{token}", ""),
    ],
)
async def test_what_is_nearly_a_token_opens_nothing(
    herd: Herd, spoil: Callable[[str], tuple[str, str]]
) -> None:
    token, session = await give_token(herd.store, "ranch"), await herd.session("ranch")
    rest, header = spoil(token)
    given = {"Authorization": header} if header else {}

    status, body, _ = await herd.ask(f"/session/{session}/url{rest}", **given)

    assert status == 401
    assert token not in body
    assert not herd.behind.lines


async def test_the_refusal_has_the_form_of_the_path(herd: Herd) -> None:
    _, webdriver, _ = await herd.ask("/session", method="POST")
    _, api, _ = await herd.ask("/json/version")

    assert webdriver.startswith('{"value":{"error":"unknown error","message":"A token is needed')
    assert api.startswith('{"error":{"code":"unauthorized","message":"A token is needed')


async def test_a_browser_opens_no_dialog(herd: Herd) -> None:
    _, _, headers = await herd.ask("/json/version", **{"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)"})

    assert headers["WWW-Authenticate"] == 'Bearer realm="remuda"'


async def test_an_expired_token_is_refused(herd: Herd) -> None:
    token = await give_token(herd.store, "ranch", expires_at=clock.now() - 1)

    assert await herd.status("/api/sessions", token) == 401


async def test_a_revoked_token_is_refused_within_a_second(herd: Herd) -> None:
    token, session = await give_token(herd.store, "ranch"), await herd.session("ranch")
    path = f"/session/{session}/url"
    assert await herd.status(path, token) == 200

    await revoke_token(herd.store, "ranch")

    async def is_refused() -> bool:
        return await herd.status(path, token) == 401

    await eventually(is_refused, DEADLINE)


async def test_a_command_of_a_known_token_to_a_known_session_asks_redis_nothing(
    herd: Herd, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, session = await give_token(herd.store, "ranch"), await herd.session("ranch")
    assert await herd.status(f"/session/{session}/url", token) == 200

    async def look_up(*_: object) -> None:
        raise AssertionError("asked Redis")

    monkeypatch.setattr(Access, "_look_up", look_up)
    monkeypatch.setattr(RedisDirectory, "_look_up", look_up)

    for _ in range(20):
        assert await herd.status(f"/session/{session}/url", token) == 200


async def test_guessing_becomes_slow_but_a_right_token_is_never_delayed(
    herd: Herd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guesses, "FREE", 2)
    monkeypatch.setattr(guesses, "LONGEST", 1000.0)
    herd.door.gateway._door._keeper._guesses._first = 1000.0  # type: ignore[union-attr]
    token = await give_token(herd.store, "ranch")
    for _ in range(2):
        assert await herd.status("/status", new_token()) == 401

    guess = asyncio.create_task(herd.status("/status", new_token()))

    async def is_delayed() -> bool:
        return bool(herd.door.gateway._door._keeper._guesses._delayed)  # type: ignore[union-attr]

    await eventually(is_delayed, DEADLINE)
    assert await herd.status("/status", token) == 200
    assert await herd.status("/login") == 200
    assert not guess.done()
    guess.cancel()


@pytest.mark.parametrize(
    ("proxies", "sources"),
    [("", {"127.0.0.1"}), ("127.0.0.0/8", {"203.0.113.1", "203.0.113.2"})],
)
async def test_who_guesses_is_told_by_an_address_that_it_cannot_make_up(
    store: Store, tmp_path: Path, proxies: str, sources: set[str]
) -> None:
    async with front_door(store, auth="on", data=tmp_path, trusted_proxy=proxies) as door:
        for number in (1, 2):
            # The proxy has added the last one; what stands before it comes from the client.
            headers = {
                "Authorization": f"Bearer {new_token()}",
                "X-Forwarded-For": f"198.51.100.{number}, 203.0.113.{number}",
                "Forwarded": f"for=192.0.2.{number}",
                "X-Real-IP": f"192.0.2.{number}",
            }
            status, _, _ = await door.get("/json/version", headers=headers)
            assert status == 401

        keeper = door.gateway._door._keeper
        assert keeper is not None
        assert keeper._guesses._counts.keys() == sources


async def test_a_missing_scope_is_named(herd: Herd) -> None:
    token, session = await give_token(herd.store, "ranch", "usage"), await herd.session("ranch")

    for path in (f"/session/{session}/url", "/json/version", f"/storage/{STORAGE}/{session}/a.log"):
        status, body, _ = await herd.ask(path, token)
        assert status == 403
        assert "'use'" in body
    assert await herd.upgrade("/playwright", token) == 403
    assert await herd.status("/api/usage", token) == 200


async def test_refusals_are_counted_by_reason(herd: Herd) -> None:
    token = await give_token(herd.store, "ranch", "usage")
    stranger = await give_token(herd.store, "other", name="stranger")
    session = await herd.session("ranch")
    await herd.status("/session", method="POST")
    await herd.status("/session", new_token(), method="POST")
    await herd.status("/session", token, method="POST")
    await herd.status(f"/session/{session}/url", stranger)

    async def are_counted() -> bool:
        reasons = ("missing", "wrong", "scope", "other_account")
        return [await herd.refusals(reason) for reason in reasons] == [1, 1, 1, 1]

    await eventually(are_counted, DEADLINE)


async def test_what_the_api_refuses_for_lack_of_a_token_is_counted_too(herd: Herd) -> None:
    herd.behind.reply = lambda line: line.transport.write(
        b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
    )
    assert await herd.status("/api/sessions") == 401
    assert await herd.status("/session", method="POST") == 401

    async def are_counted() -> bool:
        return await herd.refusals("missing") == 2

    await eventually(are_counted, DEADLINE)


# Others' sessions


@pytest.mark.parametrize(
    "path",
    [
        "/session/{}/url",
        "/wd/hub/session/{}/url",
        "/session/{}",
        "/session/{}/se/files",
        "/session/{}/se/cdp/json/version",
        "/download/{}/a.bin",
        "/devtools/{}/page",
        "/clipboard/{}",
    ],
)
@pytest.mark.parametrize("has_ended", [False, True])
async def test_anothers_session_answers_like_one_that_does_not_exist(
    herd: Herd, path: str, *, has_ended: bool
) -> None:
    mine, other = await give_token(herd.store, "ranch"), await herd.session("other")
    operator = await give_token(herd.store, "ops", "admin")
    missing = new_id()
    if has_ended:
        await Sessions(herd.store).move(other, State.TERMINATED, code="CLEFT")
    else:
        # It is remembered now.
        assert await herd.status(path.format(other), operator) == 200
    herd.behind.lines.clear()

    for method in ("GET", "DELETE", "POST"):
        status, body, headers = await herd.ask(path.format(other), mine, method=method)
        absent, said, its_headers = await herd.ask(path.format(missing), mine, method=method)
        assert (status, body, headers) == (absent, said.replace(missing, other), its_headers)
        assert status == 404
    assert await herd.upgrade(path.format(other), mine) == 404
    assert not herd.behind.lines


async def test_an_operator_reaches_every_session(herd: Herd) -> None:
    operator, session = await give_token(herd.store, "ops", "admin"), await herd.session("ranch")

    assert await herd.status(f"/session/{session}/url", operator) == 200


async def test_tokens_of_one_account_share_its_sessions(herd: Herd) -> None:
    first, second = [await give_token(herd.store, "ranch", name=name) for name in ("a", "b")]
    session = await herd.session("ranch")

    assert [await herd.status(f"/session/{session}/url", each) for each in (first, second)] == [200, 200]


async def test_a_client_that_leaves_writes_nothing_to_the_log_of_anothers_session(herd: Herd) -> None:
    mine, other = await give_token(herd.store, "ranch"), await herd.session("other")
    operator = await give_token(herd.store, "ops", "admin")
    herd.behind.reply = lambda line: None
    head = f"GET /session/{other}/url HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "
    for token in (mine, operator):
        reader, writer = await asyncio.open_connection("127.0.0.1", herd.door.port)
        writer.write(f"{head}{token}\r\n\r\n".encode())
        if token == mine:
            await reader.readuntil(b"\r\n")
        else:
            await eventually(lambda: _has_come(herd), DEADLINE)
        writer.close()

    async def logged() -> list[str]:
        entries = stream_entries(await herd.store.xrange(grid.SESSION_LOG(other)))
        return [fields["code"] for _, fields in entries if fields["code"] == "CLOST"]

    assert await eventually(logged, DEADLINE) == ["CLOST"]


async def _has_come(herd: Herd) -> bool:
    return bool(herd.behind.lines)


# DevTools


async def test_devtools_of_anothers_browser_are_those_of_none(herd: Herd) -> None:
    mine, other = await give_token(herd.store, "ranch"), await herd.session("other")
    missing = new_id()

    for what in ("version", "list"):
        _, body, _ = await herd.ask(f"/cdp/{other}/json/{what}", mine)
        _, made_up, _ = await herd.ask(f"/cdp/{missing}/json/{what}", mine)
        assert _unticketed(body) == _unticketed(
            made_up.replace(missing, other).replace(_hex(missing), _hex(other))
        )
    assert not any(b"/json" in line.received for line in herd.behind.lines)


def _unticketed(text: str) -> str:
    return re.sub(r"ticket=[A-Za-z0-9_.-]+", "ticket=T", text)


def _hex(session: str) -> str:
    return session.replace("-", "").upper()


def named_by(account: str, name: str) -> str:
    """The id of the session that an account calls so."""
    return str(uuid5(UUID(name), account))


async def test_the_name_of_anothers_browser_starts_one_of_ones_own(herd: Herd) -> None:
    mine, other = await give_token(herd.store, "ranch"), await herd.session("other")
    taken = new_id()
    await herd.session("other", named_by("other", taken))

    for name in (other, taken, new_id()):
        herd.behind.lines.clear()
        # The manager is scripted: no session comes of it.
        assert await herd.upgrade(f"/cdp/{name}", mine) == 404
        assert f"POST /session/{named_by('ranch', name)} ".encode() in herd.behind.received
        assert b"se/cdp" not in herd.behind.received


async def test_a_client_comes_back_to_its_browser_by_the_name_that_it_chose(herd: Herd) -> None:
    mine, name = await give_token(herd.store, "ranch"), new_id()
    session = await herd.session("ranch", named_by("ranch", name))

    for number, path in enumerate((name, session), start=1):
        assert await herd.upgrade(f"/cdp/{path}?keep=60s", mine) == 101
        assert await herd.status(f"/cdp/{path}/json/version", mine) == 200
        for what in ("", "/json/version"):
            assert herd.behind.received.count(f"GET /session/{session}/se/cdp{what} ".encode()) == number
    # The page that was promised before there was a browser.
    assert await herd.upgrade(f"/cdp/{name}/devtools/page/{_hex(name)}", mine) == 101
    assert f"GET /session/{session}/se/cdp/devtools/page ".encode() in herd.behind.received


async def test_only_a_name_that_cannot_be_guessed_starts_a_browser(herd: Herd) -> None:
    mine, other = await give_token(herd.store, "ranch"), await give_token(herd.store, "other")
    session = await herd.session("other", named_by("other", new_id()))
    assert await herd.upgrade(f"/cdp/{session}", other) == 101
    herd.behind.lines.clear()

    for name in (session, named_by("other", new_id())):
        assert await herd.upgrade(f"/cdp/{name}", mine) == 400
    assert not herd.behind.lines


async def test_an_operator_reaches_every_browser(herd: Herd) -> None:
    operator, session = await give_token(herd.store, "ops", "admin"), await herd.session("ranch")

    assert await herd.upgrade(f"/cdp/{session}", operator) == 101


# Tickets


async def ticket_for(herd: Herd, session: str, account: str, token: str = "ci", **options: Any) -> str:
    secret = HerdSecret(herd.store)
    await secret.read()
    scopes = frozenset({Scope.USE})
    token_id = await id_of_token(herd.store, account, token)
    origin = Origin(
        address="192.0.2.7", account=account, token=token, token_id=token_id, scopes=scopes, **options
    )
    return Tickets(secret, 60).mint(session, origin)


async def test_a_ticket_opens_the_websockets_of_its_session_and_nothing_else(herd: Herd) -> None:
    await give_token(herd.store, "ranch")
    session, second = await herd.session("ranch"), await herd.session("ranch")
    query = f"?ticket={await ticket_for(herd, session, 'ranch')}"

    for path in ("", "/se/bidi", "/se/cdp", "/se/cdp/devtools/page/A"):
        assert await herd.upgrade(f"/session/{session}{path}{query}") == 101
        assert await herd.upgrade(f"/session/{second}{path}{query}") == 401
    assert await herd.upgrade(f"/cdp/{session}{query}") == 101
    assert await herd.status(f"/cdp/{session}/json/list{query}") == 200
    for method in ("DELETE", "GET", "POST"):
        assert await herd.status(f"/session/{session}{query}", method=method) == 401
    assert await herd.status(f"/session{query}", method="POST") == 401
    assert await herd.status(f"/api/sessions{query}") == 401
    assert b"ticket" not in herd.behind.received


async def test_a_ticket_for_anothers_session_opens_nothing(herd: Herd) -> None:
    await give_token(herd.store, "ranch")
    other = await herd.session("other")
    query = f"?ticket={await ticket_for(herd, other, 'ranch')}"

    assert await herd.upgrade(f"/session/{other}{query}") == 404


async def test_a_ticket_ends_with_the_token_behind_it(herd: Herd) -> None:
    await give_token(herd.store, "ranch")
    session = await herd.session("ranch")
    query = f"?ticket={await ticket_for(herd, session, 'ranch')}"
    assert await herd.upgrade(f"/session/{session}{query}") == 101

    await revoke_token(herd.store, "ranch")

    assert await herd.upgrade(f"/session/{session}{query}") == 401


async def test_a_new_token_of_the_same_name_opens_nothing_to_old_tickets(herd: Herd) -> None:
    await give_token(herd.store, "ranch")
    session = await herd.session("ranch")
    query = f"?ticket={await ticket_for(herd, session, 'ranch')}"

    await revoke_token(herd.store, "ranch")
    await give_token(herd.store, "ranch")

    assert await herd.upgrade(f"/session/{session}{query}") == 401


@pytest.mark.parametrize("way", ["/session/{}", "/session/{}/se/cdp", "/cdp/{}", "/devtools/{}/page/A"])
async def test_websockets_to_a_session_end_with_the_token_that_opened_them(herd: Herd, way: str) -> None:
    session = await herd.session("ranch")
    path = way.format(session)
    token, admin = await give_token(herd.store, "ranch"), await give_token(herd.store, "ops", "admin")
    await give_token(herd.store, "ranch", name="owner")
    ticket = await ticket_for(herd, session, "ranch")
    kept = await ticket_for(herd, session, "ranch", "owner")
    async with (
        herd.websocket(path, token) as (_, own),
        herd.websocket(f"{path}?ticket={ticket}") as (_, ticketed),
        herd.websocket(path, admin) as (_, operators),
        herd.websocket(f"{path}?ticket={kept}") as (status, others),
    ):
        await end_connections(herd.store, "ranch", "ci")
        await end_connections(herd.store, "ops", None)

        async with asyncio.timeout(DEADLINE):
            ends = await asyncio.gather(own.read(), ticketed.read(), operators.read())
        assert ends[0] == ends[1] == going_away("The token ci was revoked")
        assert ends[2] == going_away("The account ops was deleted")
        assert status == 101
        assert len(herd.door.gateway._door.relay.tunnels) == 1
        assert not others.at_eof()


async def test_a_url_that_is_asked_for_with_a_ticket_expires_with_it(herd: Herd) -> None:
    await give_token(herd.store, "ranch")
    session = new_id()
    until = int(clock.now()) + 30
    ticket = await ticket_for(herd, session, "ranch", until=until)

    _, body, _ = await herd.ask(f"/cdp/{session}/json/version?ticket={ticket}")

    # The same words signed again, with the same end.
    assert body.count(f"?ticket={ticket}") == 1


async def test_a_node_learns_when_the_ticket_that_was_shown_expires(herd: Herd) -> None:
    await give_token(herd.store, "ranch")
    session, until = await herd.session("ranch"), int(clock.now()) + 30
    ticket = await ticket_for(herd, session, "ranch", until=until)

    assert await herd.status(f"/session/{session}/se/cdp/json/list?ticket={ticket}") == 200

    assert f"X-Remuda-Until: {until}\r\n".encode() in herd.behind.received


async def test_the_url_of_a_browser_that_does_not_run_yet_carries_a_ticket(herd: Herd) -> None:
    token = await give_token(herd.store, "ranch")

    _, body, _ = await herd.ask(f"/json/version?token={token}&keep=5")

    found = re.search(r'ws://127\.0\.0\.1:\d+(/cdp/([0-9a-f-]{36})\?keep=5&ticket=[^"]+)"', body)
    assert found is not None
    assert token not in body
    # It is asked for at a manager, for the account of the token.
    herd.behind.lines.clear()
    await herd.upgrade(found[1])
    assert f"POST /session/{named_by('ranch', found[2])} ".encode() in herd.behind.received
    assert b"X-Remuda-Account: ranch\r\n" in herd.behind.received


# Playwright


async def test_with_auth_on_no_two_connections_share_a_browser(store: Store, tmp_path: Path) -> None:
    token = await give_token(store, "ranch")
    shared, own = ScriptedWorker("shared"), ScriptedWorker("own", browser=ServedBrowser.CHROMIUM_OWN)
    async with workers(store, shared, own), front_door(store, auth="on", data=tmp_path) as door:
        socket = await door.connect(f"/?token={token}")

        assert (len(shared.requests), len(own.requests)) == (0, 1)
        assert token not in str(own.requests[0].headers) + own.requests[0].path_qs
        status, error, _ = await door.refusal(f"/?token={token}&own=false")
        assert (status, "not shared" in error["message"]) == (400, True)
        await socket.close()


async def test_an_operator_can_have_them_share(store: Store, tmp_path: Path) -> None:
    token = await give_token(store, "ranch")
    async with (
        workers(store, ScriptedWorker("shared")),
        front_door(store, auth="on", data=tmp_path, playwright_isolation="shared") as door,
    ):
        socket = await door.connect(f"/?token={token}")
        await socket.close()
