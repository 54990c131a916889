"""The API of jobs: what a client sees and changes, and that it sees no other account's."""

import asyncio
from typing import Any

import aiohttp
import msgspec
import pytest

from jobs import IDENT, URL, claim_job, job_fields, keys_that_hold, new_pipeline, queue_job, run_job
from remuda.accounts.shares import PREFIX, Shares
from remuda.archive.jobs import Jobs
from remuda.archive.logs import Logs
from remuda.archive.model import JobState, OrderOptions
from remuda.archive.pipelines import Pipelines, identity_of
from remuda.archive.room import ArchiveConfig
from remuda.archive.view import BATCH
from remuda.base import clock
from remuda.base.ids import new_id
from remuda.fleet.origin import Scope
from remuda.fleet.route import EVENT_STREAM
from remuda.fleet.secret import HerdSecret
from remuda.keyspace import archive
from remuda.store import Store
from web_states import account_client, all_routes, herd_client, new_api, serving, visiting

JOBS = "/api/archive/jobs"
OF_A_JOB = [route for route in all_routes() if route.path.startswith(f"{JOBS}/{{ident}}")]
LINE = b'{"type":"stdout","ts":1,"message":"hello"}'


async def ask(
    client: aiohttp.ClientSession, method: str, path: str, body: Any = None
) -> tuple[int, dict[str, Any]]:
    """Status and JSON of an answer; of a stream, its first event with data."""
    async with client.request(method, path, json=body) as response:
        if not response.headers.get("Content-Type", "").startswith(EVENT_STREAM):
            text = await response.read()
            return response.status, msgspec.json.decode(text) if text else {}
        async for line in response.content:
            if line.startswith(b"data: "):
                return response.status, {"data": msgspec.json.decode(line.removeprefix(b"data: "))}
    return 0, {}


async def test_a_job_is_started_shown_changed_and_aborted(store: Store) -> None:
    async with visiting(store) as client:
        status, made = await ask(client, "POST", JOBS, {"url": "www.example.com"})
        assert status == 400
        status, made = await ask(client, "POST", JOBS, {"url": "http://www.example.com", "note": "closing"})
        assert status == 200
        assert (made["ident"], made["run"], made["state"], made["url"]) == (IDENT, 1, "queued", URL)
        assert made["settings"]["concurrency"] == 3
        assert (await ask(client, "POST", JOBS, {"url": URL}))[0] == 409

        change = {"concurrency": 9, "userAgent": "curl", "delayMin": 10}
        status, changed = await ask(client, "PATCH", f"{JOBS}/{IDENT}", change)
        assert changed["settings"]["concurrency"] == 9
        assert changed["settings"]["userAgent"].startswith("curl/")
        assert (await ask(client, "POST", f"{JOBS}/{IDENT}/pause"))[1]["settings"]["paused"]
        assert not (await ask(client, "POST", f"{JOBS}/{IDENT}/resume"))[1]["settings"]["paused"]
        assert (await ask(client, "PATCH", f"{JOBS}/{IDENT}", {"concurrency": 0}))[0] == 400

        assert (await ask(client, "POST", f"{JOBS}/{IDENT}/abort"))[1]["state"] == "aborted"
        assert (await ask(client, "PATCH", f"{JOBS}/{IDENT}", change))[0] == 409
        assert (await ask(client, "POST", JOBS, {"url": URL}))[1]["run"] == 2
        status, first = await ask(client, "GET", f"{JOBS}/{IDENT}?run=1")
        assert (first["state"], first["runs"], first["settings"]) == ("aborted", [2, 1], None)
        assert (await ask(client, "GET", f"{JOBS}/{IDENT}?run=7"))[0] == 404


async def test_an_ident_may_be_typed_without_its_leading_zeros(store: Store) -> None:
    record = await queue_job(store, "http://example.com/1")
    assert record.ident.startswith("0")
    async with visiting(store) as client:
        assert (await ask(client, "GET", f"{JOBS}/2jzegnfvjued5hxoygrk7781"))[1]["ident"] == record.ident


async def test_jobs_are_listed_page_by_page_and_by_state(store: Store) -> None:
    for number in range(5):
        await queue_job(store, f"{URL}{number}")
    await claim_job(store)
    async with visiting(store) as client:
        _, first = await ask(client, "GET", f"{JOBS}?limit=3")
        _, rest = await ask(client, "GET", f"{JOBS}?limit=3&before={first['cursor']}")
        _, running = await ask(client, "GET", f"{JOBS}?state=running")
        _, unfinished = await ask(client, "GET", f"{JOBS}?state=open")

    urls = [job["url"] for page in (first, rest) for job in page["jobs"]]
    assert urls == [f"{URL}{number}" for number in reversed(range(5))]
    assert rest["cursor"] is None
    assert [job["url"] for job in running["jobs"]] == [f"{URL}0"]
    assert len(unfinished["jobs"]) == 5


async def test_a_list_passes_by_what_is_not_there_any_more(store: Store) -> None:
    await queue_job(store)
    gone = {f"{IDENT}-{number}": clock.now() + number for number in range(2, BATCH + 10)}
    await store.zadd(archive.ALL_RUNS(), gone)
    async with visiting(store) as client:
        _, page = await ask(client, "GET", JOBS)

    assert [job["ident"] for job in page["jobs"]] == [IDENT]


async def test_ignores_are_shown_and_changed(store: Store) -> None:
    await queue_job(store)
    async with visiting(store) as client:
        _, changed = await ask(client, "PATCH", f"{JOBS}/{IDENT}/ignores", {"add": ["/calendar/"]})
        _, shown = await ask(client, "GET", f"{JOBS}/{IDENT}/ignores")
        refused, why = await ask(client, "PATCH", f"{JOBS}/{IDENT}/ignores", {"add": ["("]})
        _, sets = await ask(client, "GET", "/api/archive/ignore-sets")

    assert changed["added"] == 1
    assert "/calendar/" in shown["ignores"]
    assert refused == 400
    assert why["error"]["message"]
    assert "global" in [each["name"] for each in sets["sets"]]


async def test_a_log_is_read_and_followed_to_its_end(store: Store) -> None:
    pipeline = new_pipeline()
    claim = await run_job(store, pipeline)
    await Logs(store).append(claim.run, [LINE] * 3)
    async with visiting(store) as client:
        _, log = await ask(client, "GET", f"{JOBS}/{IDENT}/log?limit=2")
        assert [entry["seq"] for entry in log["entries"]] == [2, 3]
        async with client.get(f"{JOBS}/{IDENT}/log/live?after=2") as live:
            await Logs(store).append(claim.run, [LINE])
            await Logs(store).digest(claim.ident)
            await Jobs(store).finish(claim.run, JobState.COMPLETED, asker=pipeline)
            async with asyncio.timeout(10):
                text = (await live.read()).decode()
        assert (await client.get(f"{JOBS}/{IDENT}/log/live?after=4")).status == 204

    seen = [line for line in text.splitlines() if line.startswith("data: [")]
    seqs = [entry["seq"] for line in seen for entry in msgspec.json.decode(line.removeprefix("data: "))]
    assert seqs == [3, 4]
    assert "event: end" in text


@pytest.mark.parametrize("route", OF_A_JOB, ids=lambda route: f"{route.method} {route.path}")
async def test_to_another_account_a_job_is_one_that_never_was(store: Store, route: Any) -> None:
    record = await queue_job(store, account="own", note="only-its-account-knows-this")
    never = "0" * 25
    before = await job_fields(store, record.ident)
    async with (
        serving(new_api(store)) as url,
        account_client(store, url, "other", Scope.ARCHIVE) as client,
    ):
        body: Any = {} if route.body else None
        theirs = await ask(client, route.method, route.path.replace("{ident}", record.ident), body)
        missing = await ask(client, route.method, route.path.replace("{ident}", never), body)

    assert theirs[0] == 404
    assert str(theirs).replace(record.ident, "") == str(missing).replace(never, "")
    assert await job_fields(store, record.ident) == before


async def test_a_file_is_shared_with_those_who_have_no_token(store: Store) -> None:
    pipeline, storage = new_pipeline(), new_id()
    claim = await run_job(store, pipeline)
    file = {"name": "site.wacz", "kind": "wacz", "size": 1, "sha256": "00"}
    fields = {"files": msgspec.json.encode([file]).decode(), "storage": storage}
    await Jobs(store).finish(claim.run, JobState.COMPLETED, asker=pipeline, fields=fields)
    path = f"{JOBS}/{IDENT}/artifacts"
    async with visiting(store) as client:
        status, share = await ask(client, "POST", f"{path}/site.wacz/share", {"expires": "1h"})
        assert (await ask(client, "POST", f"{path}/other.wacz/share", {}))[0] == 404
        assert (await ask(client, "POST", f"{path}/site.wacz/share?run=7", {}))[0] == 404

    assert status == 200
    segment, *rest = share["url"].partition(PREFIX)[2].split("/")
    assert rest == [storage, f"job_{claim.run}", "site.wacz"]
    secret = HerdSecret(store)
    await secret.read()
    Shares(secret).check(segment, *rest)


async def test_no_answer_log_or_audit_entry_has_the_password_of_a_url(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    secret = "http://me:hush@www.example.com/"
    async with visiting(store) as client:
        made = await ask(client, "POST", JOBS, {"url": secret})
        wrong = ("me:hush@www.example.com", "ftp://me:hush@www.example.com/", "http://me:hush@a b/")
        asked: list[tuple[str, str, Any]] = [("POST", JOBS, {"url": each}) for each in (secret, *wrong)]
        asked.append(("PATCH", f"{JOBS}/{IDENT}", {"paused": True}))
        shown = (JOBS, f"{JOBS}/{IDENT}", f"{JOBS}/{IDENT}/log", "/api/archive/live", "/api/audit")
        asked += [("GET", path, None) for path in shown]
        answers = [made, *[await ask(client, *each) for each in asked]]

    assert [status for status, _ in answers] == [200, 409, 400, 400, 400, *[200] * 6]
    assert (made[1]["url"], made[1]["credentialsFor"]) == (URL, ["http://www.example.com"])
    assert "hush" not in str(answers)
    assert "hush" not in str([vars(each) for each in caplog.records])
    assert await keys_that_hold(store, "hush") == {archive.CREDENTIALS(IDENT)}


@pytest.mark.parametrize("omits", [False, True])
async def test_a_file_with_a_password_is_shared_only_by_those_who_say_so(store: Store, omits: bool) -> None:
    pipeline = new_pipeline()
    url = "http://me:hush@www.example.com/"
    claim = await run_job(store, pipeline, url, options=OrderOptions(omit_authorization=omits))
    files = [{"name": f"site.{kind}", "kind": kind, "size": 1, "sha256": "00"} for kind in ("wacz", "cdxj")]
    fields = {"files": msgspec.json.encode(files).decode(), "storage": new_id()}
    await Jobs(store).finish(claim.run, JobState.COMPLETED, asker=pipeline, fields=fields)
    path = f"{JOBS}/{IDENT}/artifacts"
    async with visiting(store) as client:
        status, refusal = await ask(client, "POST", f"{path}/site.wacz/share", {})
        willing, _ = await ask(client, "POST", f"{path}/site.wacz/share", {"credentials": True})
        harmless, _ = await ask(client, "POST", f"{path}/site.cdxj/share", {})

    assert (status, willing, harmless) == (200 if omits else 400, 200, 200)
    assert omits or "user and password for http://www.example.com" in refusal["error"]["message"]


async def test_lists_show_an_account_its_own_jobs_and_operators_all(store: Store) -> None:
    own = await queue_job(store, account="own")
    other = await queue_job(store, account="other")
    async with (
        serving(new_api(store)) as url,
        account_client(store, url, "own", Scope.ARCHIVE) as client,
        herd_client(store, url) as operator,
    ):
        for path in (JOBS, "/api/archive/live"):
            _, seen = await ask(client, "GET", path)
            assert own.ident in str(seen)
            assert other.ident not in str(seen)
            _, all_seen = await ask(operator, "GET", path)
            assert own.ident in str(all_seen)
            assert other.ident in str(all_seen)


async def test_an_account_that_has_too_many_jobs_is_told_to_come_back(store: Store) -> None:
    limit = ArchiveConfig().archive_jobs_per_account
    for number in range(limit):
        await queue_job(store, f"{URL}{number}", account="own")
    async with (
        serving(new_api(store)) as url,
        account_client(store, url, "own", Scope.ARCHIVE) as client,
    ):
        status, refused = await ask(client, "POST", JOBS, {"url": URL})

    assert status == 429
    assert refused["error"]["code"] == "account_limit_reached"


async def test_operators_see_pipelines_and_drain_them(store: Store) -> None:
    pipeline, pipelines = new_pipeline(), Pipelines(store)
    fields = {**identity_of(pipeline, nickname="ovh"), "status": "Running", "jobs": "1"}
    await pipelines.enlist(pipeline)
    assert not await pipelines.beat(pipeline, fields)
    name = pipeline.partition(":")[2]
    async with visiting(store) as client:
        _, found = await ask(client, "GET", "/api/archive/pipelines")
        assert [(each["id"], each["nickname"]) for each in found["pipelines"]] == [(pipeline, "ovh")]
        assert (await ask(client, "POST", f"/api/archive/pipelines/{name}/drain"))[0] == 200
        assert await pipelines.beat(pipeline, fields)
        assert (await ask(client, "DELETE", f"/api/archive/pipelines/{name}/drain"))[0] == 200
        assert not await pipelines.beat(pipeline, fields)
        assert (await ask(client, "POST", "/api/archive/pipelines/nobody/drain"))[0] == 404


@pytest.mark.parametrize("others", ["set", "list"])
async def test_the_list_of_pipelines_takes_the_type_that_others_gave_it(store: Store, others: str) -> None:
    add = store.sadd if others == "set" else store.rpush
    await add(archive.PIPELINES(), "pipeline:0a")  # type: ignore[arg-type]
    pipeline = new_pipeline()

    await Pipelines(store).enlist(pipeline)
    await Pipelines(store).enlist(pipeline)

    assert sorted(await Pipelines(store).listed()) == sorted(["pipeline:0a", pipeline])
    assert await store.type_of(archive.PIPELINES()) == others
    await Pipelines(store).withdraw(pipeline)
    assert await Pipelines(store).listed() == ["pipeline:0a"]
