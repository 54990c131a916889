"""The JSON API against a real Redis: every answer is what its declaration says."""

import msgspec
import pytest
from yarl import URL

import servers
from jobs import URL as URL_OF_SITE
from jobs import new_pipeline, queue_job
from remuda import __version__
from remuda.accounts.tokens import Tokens
from remuda.archive.jobs import HERD, Jobs
from remuda.archive.model import JobState
from remuda.archive.pipeline.delivery import ArchiveFile
from remuda.archive.pipelines import Pipelines, identity_of
from remuda.base.ids import SessionId
from remuda.fleet.origin import Scope
from remuda.fleet.role import Life, Role
from remuda.fleet.route import Route
from remuda.grid.http.graphql import GraphqlRequest
from remuda.grid.http.settings import TimeoutsChange
from remuda.grid.model import State
from remuda.grid.sessions import Sessions, session_bell
from remuda.keyspace import archive, grid, storage
from remuda.keyspace.fleet import SECRET
from remuda.metering.http import NewOwner
from remuda.store import Store
from waiting import eventually
from web_states import (
    SessionWriter,
    all_routes,
    get,
    herd_client,
    new_api,
    orchestrator,
    running,
    serving,
    visiting,
)

UNKNOWN = "0c605c88-687e-40da-8068-1c1d2bafc6b7"
STRUCTURED = [
    route
    for route in all_routes()
    if not isinstance(route.answer, str) and route.path != "/readyz"  # That waits for a herd.
]
HOSTILE = ["*", "..%2f..%2fetc", "a%0d%0ab", "%00", "session:x", "x" * 5000, UNKNOWN.upper(), UNKNOWN + "%0a"]


async def prepare(store: Store) -> SessionId:
    """A herd with sessions in every state; one that is alive."""
    writer = SessionWriter(store)
    await writer.end(await writer.serve(browserName="chrome"), code="STIMEOUT")
    await writer.queue(browserName="firefox", **{"se:name": "waits"})
    await writer.schedule(browserName="chrome")
    session = await writer.serve(browserName="chrome")
    await store.set(grid.SESSION_STORAGE(session), UNKNOWN)
    return session


async def prepare_archive(store: Store, *, file: str) -> dict[str, str]:
    """A job that waits, or one that has left a file, and a pipeline; as they are named in paths."""
    pipeline = new_pipeline()
    await Pipelines(store).enlist(pipeline)
    await Pipelines(store).beat(pipeline, identity_of(pipeline, nickname="ovh"))
    job = await queue_job(store, URL_OF_SITE)
    if file:
        await Jobs(store).finish(job.run, JobState.ABORTED, asker=HERD)
        files = msgspec.json.encode([ArchiveFile(file, "warc", 1, "")]).decode()
        await store.hset(archive.RUN(job.run), {"files": files, "storage": UNKNOWN})
    return {"ident": job.ident, "pipeline": pipeline.partition(":")[2]}


@pytest.mark.parametrize("route", STRUCTURED, ids=lambda route: f"{route.method} {route.path}")
async def test_an_answer_is_exactly_what_its_route_declares(store: Store, route: Route) -> None:
    async with running(orchestrator(store, slots=4)), visiting(store) as client:
        session = await prepare(store)
        token, _ = await Tokens(store).create(f"{session}.mp4", account="web", scopes={Scope.USE})
        file = f"{session}.mp4"
        names = {"session": session, "name": file, "orchestrator": "ranch", "node": "ranch"}
        archived = await prepare_archive(store, file=file if "artifacts" in route.path else "")
        names |= {"account": "web", **archived}
        body_of_all: dict[str, object] = {
            "name": "new",
            "account": "web",
            "token": token,
            "sessions": 3,
            "url": f"{URL_OF_SITE}new",
            "quotas": {"grid.browserSeconds": {"hard": 5, "period": "day"}},
        }
        given = body_of_all if route.body else None
        if route.body is TimeoutsChange:  # Takes nothing that is no setting.
            given = {"queue": 5}
        if route.body in (NewOwner, GraphqlRequest) or route.read_by_handler:
            given = route.example
        path = route.path.format_map(names)
        queries = {
            "/api/usage/resources": {"service": "grid"},
            "/api/metering/owners": {"resource": "photos"},
            "/graphql": {"query": "{ grid { sessionCount } }"},
        }
        query = queries.get(path) if route.query else None
        async with client.request(route.method, path, params=query, json=given) as response:
            body = await response.read()

        assert response.status == route.status
        assert response.content_type == "application/json"
        assert response.headers["Cache-Control"] == "no-cache"
        # Decoded and encoded again it is the same: nothing missing, nothing that is not declared.
        assert msgspec.json.encode(msgspec.json.decode(body, type=route.answer)) == body


async def test_a_sessions_artifacts_are_deleted_by_who_keeps_them(store: Store) -> None:
    async with running(orchestrator(store, slots=4)), visiting(store) as client:
        path = f"/api/sessions/{await prepare(store)}/artifacts"

        first, _ = await get(client, path, method="DELETE")
        second, answer = await get(client, path, method="DELETE")

        assert first == 200
        assert (second, "has no artifacts" in answer["error"]["message"]) == (404, True)
        assert await store.scard(storage.STORAGE_UNWANTED(UNKNOWN)) == 1


async def test_the_overview_holds_everything_the_dashboard_shows(store: Store) -> None:
    async with running(orchestrator(store, slots=4)), visiting(store) as client:
        session = await prepare(store)

        _, overview = await get(client, "/api/overview")

        assert overview["version"] == __version__
        assert overview["slots"] == {"used": 2, "total": 4}
        assert overview["counts"] == {"queued": 1, "pending": 1, "alive": 1}
        by_state = {each["state"]: each["id"] for each in overview["sessions"]}
        assert set(by_state) == {"queued", "pending", "alive"}
        assert by_state["alive"] == session
        assert [each["name"] for each in overview["queue"]] == ["waits"]
        assert overview["queue"][0]["waited"] >= 0
        assert [each["id"] for each in overview["orchestrators"]] == ["ranch"]
        assert overview["roles"] == []


async def test_roles_that_run_are_listed(store: Store) -> None:
    role = Role()
    life = Life(store, [role])
    await life._announce()
    async with visiting(store) as client:
        _, answer = await get(client, "/api/roles")

        [shown] = answer["roles"]
        assert (shown["id"], shown["name"], shown["version"]) == (role.id, "role", __version__)
        assert isinstance(shown["pid"], int)


async def test_sessions_are_listed_by_state_and_page(store: Store) -> None:
    writer = SessionWriter(store)
    active = [await writer.queue() for _ in range(3)]
    ended = await writer.queue()
    await writer.end(ended, code="QTIMEOUT")
    async with visiting(store) as client:
        _, first = await get(client, "/api/sessions?limit=2")
        _, second = await get(client, f"/api/sessions?limit=2&cursor={first['cursor']}")
        _, terminated = await get(client, "/api/sessions?state=terminated")

        assert len(first["sessions"]) == 2
        assert {each["id"] for each in first["sessions"] + second["sessions"]} == set(active)
        assert second["cursor"] is None
        assert [each["id"] for each in terminated["sessions"]] == [ended]
        assert terminated["cursor"] is None


@pytest.mark.parametrize(
    "query",
    ["state=dead", "limit=0", "limit=501", "limit=many", "cursor=-1", "cursor=x", "cursor=" + "9" * 99],
)
async def test_a_query_that_cannot_be_used_is_refused(store: Store, query: str) -> None:
    async with visiting(store) as client:
        status, answer = await get(client, f"/api/sessions?{query}")

        assert (status, answer["error"]["code"]) == (400, "invalid_argument")
        assert query.partition("=")[0] in answer["error"]["message"]


async def test_a_log_is_read_on_from_an_entry(store: Store) -> None:
    session = await SessionWriter(store).queue()
    await Sessions(store).log(session, "PENDING")
    async with visiting(store) as client:
        _, whole = await get(client, f"/api/sessions/{session}/log")
        first = whole["entries"][0]["id"]
        _, rest = await get(client, f"/api/sessions/{session}/log?after={first}")
        refused, _ = await get(client, f"/api/sessions/{session}/log?after=%2B")

        assert [entry["code"] for entry in whole["entries"]] == ["QUEUED", "PENDING"]
        assert rest["entries"] == whole["entries"][1:]
        assert refused == 400


async def test_ending_a_session_moves_it_logs_it_and_rings_its_node(store: Store) -> None:
    async with running(orchestrator(store)), visiting(store) as client:
        session = await SessionWriter(store).serve()
        with store.subscribe(session_bell(session)) as rings:
            ended = await get(client, f"/api/sessions/{session}", method="DELETE")
            again = await get(client, f"/api/sessions/{session}", method="DELETE")

            assert ended == (200, {"id": session, "ended": True})
            assert again == (200, {"id": session, "ended": False})
            assert await rings.wait(5) == [State.TERMINATED]
        assert await store.sismember(grid.SESSIONS_TERMINATED(), session)
        last_words = await Sessions(store).last_words(session)
        assert last_words == ("CLOSED", {"message": "Ended through the API"})


async def test_ending_a_session_that_waits_tells_that_its_client_gave_up(store: Store) -> None:
    session = await SessionWriter(store).queue()
    async with visiting(store) as client:
        await get(client, f"/api/sessions/{session}", method="DELETE")

        last_words = await Sessions(store).last_words(session)
        assert last_words is not None
        assert last_words[0] == "CLEFT"


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("session", [UNKNOWN, *HOSTILE], ids=range(len(HOSTILE) + 1))
async def test_a_session_that_is_none_is_not_found(store: Store, method: str, session: str) -> None:
    async with serving(new_api(store)) as url, herd_client(store, url) as client:
        as_it_is = URL(f"/api/sessions/{session}", encoded=True)
        async with client.request(method, as_it_is) as response:
            answer = await response.json()

        assert response.status == 404
        assert answer["error"]["code"] in ("session_lost", "unknown_command")
        assert len(answer["error"]["message"]) < 500
        assert await store.send("KEYS", "*") == [SECRET()]


@pytest.mark.parametrize("path", ["/nothing", "/api", "/api/", "/api/nothing", "/api/sessions/a/b/c"])
async def test_an_unknown_path_is_refused_in_json(store: Store, path: str) -> None:
    async with visiting(store) as client:
        assert await get(client, path) == (
            404,
            {"error": {"code": "unknown_command", "message": f"There is nothing at {path}."}},
        )


async def test_a_wrong_method_is_refused_with_the_ones_that_are_allowed(store: Store) -> None:
    async with visiting(store) as client, client.put(f"/api/sessions/{UNKNOWN}") as response:
        answer = await response.json()

        assert (response.status, answer["error"]["code"]) == (405, "unknown_method")
        allowed = {method.strip() for method in response.headers["Allow"].split(",")}
        assert allowed == {"GET", "HEAD", "DELETE"}


@pytest.mark.parametrize("path", ["/api/overview", "/api/sessions", "/api/orchestrators", "/api/roles"])
async def test_without_redis_the_api_is_unavailable_for_a_while(server: servers.Server, path: str) -> None:
    async with Store(server.url, timeout=servers.PATIENCE) as store, visiting(store) as client:
        server.kill()
        await eventually(lambda: not store.is_connected)

        async with client.get(path) as response:
            answer = await response.json()

        assert (response.status, answer["error"]["code"]) == (503, "store_unavailable")
        assert int(response.headers["Retry-After"]) >= 1


async def test_a_bug_is_answered_without_its_inner_life(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with visiting(store) as client:
        monkeypatch.setattr(Store, "smembers", lambda *_: 1 / 0)

        status, answer = await get(client, "/api/orchestrators")

        assert (status, answer) == (500, {"error": {"code": "broken", "message": "This is a bug in Remuda."}})
