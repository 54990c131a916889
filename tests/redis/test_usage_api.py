"""`GET /api/usage`: series, totals and resources, each account's own."""

import csv
import io
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from configs import make_config
from credentials import herd_headers, origin_headers
from remuda.base import clock
from remuda.cli.rooms import ROOMS
from remuda.fleet.origin import Origin, Scope
from remuda.fleet.room import Surroundings
from remuda.metering.model import Services
from remuda.metering.push import Metering
from remuda.store import Store
from remuda.web.api import Api
from web_states import serving

SERVICES = Services(service for room in ROOMS for service in room.services)
HOUR = 3_600_000
Client = aiohttp.ClientSession
OPERATOR = frozenset({Scope.ADMIN})
VIEWER = frozenset({Scope.USAGE})


@pytest.fixture
async def now(store: Store) -> int:
    """The beginning of this hour. A session of two accounts, and artifacts that came in the hour before."""
    metering, hour = Metering(store, services=SERVICES), clock.now_ms() // HOUR * HOUR
    for account, seconds in (("ranch", 60), ("farm", 7)):
        whose = {"accountId": account}
        await metering.push("createSession", whose, service="grid", timestamp=hour - HOUR)
        await metering.push(
            "useBrowser", {**whose, "seconds": seconds}, service="grid", timestamp=hour - HOUR
        )
    kept = {"accountId": "ranch", "byteLength": 10**9, "numberOfObjects": 3}
    await metering.push("addArtifacts", kept, service="artifacts", timestamp=hour - HOUR)
    put = {"bucket": "hay", "accountId": "ranch", "newByteLength": 5, "oldByteLength": None}
    await metering.push("putObject", put, timestamp=hour - HOUR)
    return hour


@pytest.fixture
async def api(store: Store) -> AsyncIterator[aiohttp.ClientSession]:
    api = Api(Surroundings(store, make_config(), ROOMS))
    headers = await herd_headers(store)
    async with serving(api) as url, aiohttp.ClientSession(url, headers=headers) as client:
        yield client


async def ask(
    api: Client, path: str, *, account: str = "ops", scopes: frozenset[Scope] = OPERATOR
) -> tuple[int, Any]:
    origin = Origin(address="127.0.0.1", account=account, token="t", scopes=scopes)
    async with api.get(path, headers=origin_headers(origin)) as answer:
        is_json = "json" in answer.headers["Content-Type"]
        return answer.status, await answer.json() if is_json else await answer.text()


async def test_a_series_has_a_number_for_each_step(api: Client, now: int) -> None:
    path = f"/api/usage?service=grid&resource=ranch,farm&start={now - 2 * HOUR}&end={now}&step=hour"
    status, report = await ask(api, path)

    assert status == 200
    assert report["times"] == [clock.rfc3339((now - hours * HOUR) / 1000) for hours in (2, 1)]
    assert report["usage"] == [
        {
            "service": "grid",
            "level": "accounts",
            "resource": account,
            "totals": {"CreateSession": 1, "browserSeconds": seconds},
            "series": {"CreateSession": [0, 1], "browserSeconds": [0, seconds]},
            "gigabyteHours": None,
        }
        for account, seconds in (("ranch", 60), ("farm", 7))
    ]


async def test_storage_is_integrated_over_time(api: Client, now: int) -> None:
    path = f"/api/usage?service=artifacts&resource=ranch&start={now - 3 * HOUR}&end={now}&step=total"
    _, report = await ask(api, path)

    (usage,) = report["usage"]
    assert usage["totals"] == {"storageUtilized": 10**9, "numberOfObjects": 3}
    assert usage["gigabyteHours"] == pytest.approx(1.0)


async def test_without_resources_an_operator_sees_all_of_the_level(api: Client, now: int) -> None:
    _, report = await ask(api, "/api/usage?step=total")

    assert {(each["service"], each["resource"]) for each in report["usage"]} == {
        ("grid", "ranch"),
        ("grid", "farm"),
        ("artifacts", "ranch"),
        ("s3", "ranch"),
    }


async def test_the_same_in_csv(api: Client, now: int) -> None:
    path = f"/api/usage?service=grid&resource=ranch&start={now - 2 * HOUR}&end={now}&format=csv"
    status, text = await ask(api, path)

    first, second = (clock.rfc3339((now - hours * HOUR) / 1000) for hours in (2, 1))
    assert status == 200
    assert list(csv.reader(io.StringIO(text))) == [
        ["time", "service", "level", "resource", "measure", "value"],
        [first, "grid", "accounts", "ranch", "CreateSession", "0"],
        [second, "grid", "accounts", "ranch", "CreateSession", "1"],
        [first, "grid", "accounts", "ranch", "browserSeconds", "0"],
        [second, "grid", "accounts", "ranch", "browserSeconds", "60"],
    ]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/usage?resource=ranch", 200),
        ("/api/usage?resource=ranch,farm", 403),
        ("/api/usage?level=service", 403),
        ("/api/usage?service=s3&level=buckets&resource=hay", 200),
        ("/api/usage/resources?service=s3&level=service", 403),
    ],
)
async def test_an_account_sees_its_own_usage_only(api: Client, now: int, path: str, expected: int) -> None:
    status, _ = await ask(api, path, account="ranch", scopes=VIEWER)

    assert status == expected


async def test_another_accounts_bucket_is_not_shown(api: Client, now: int) -> None:
    path = "/api/usage?service=s3&level=buckets&resource=hay"

    assert (await ask(api, path, account="farm", scopes=VIEWER))[0] == 403


async def test_a_token_without_the_scope_sees_nothing(api: Client, now: int) -> None:
    status, _ = await ask(api, "/api/usage", account="ranch", scopes=frozenset({Scope.USE}))

    assert status == 403


@pytest.mark.parametrize(
    ("account", "scopes", "names"),
    [("ops", OPERATOR, ["hay"]), ("ranch", VIEWER, ["hay"]), ("farm", VIEWER, [])],
)
async def test_resources_are_listed_to_whom_they_belong(
    api: Client, now: int, account: str, scopes: frozenset[Scope], names: list[str]
) -> None:
    path = "/api/usage/resources?service=s3&level=buckets"
    _, listed = await ask(api, path, account=account, scopes=scopes)

    assert [each["resource"] for each in listed["resources"]] == names
    assert all(each["account"] == "ranch" for each in listed["resources"])


async def test_resources_come_in_pages(api: Client, now: int) -> None:
    names, cursor = [], 0
    for _ in range(2):
        path = f"/api/usage/resources?service=grid&limit=1&cursor={cursor}"
        _, page = await ask(api, path)
        names += [each["resource"] for each in page["resources"]]
        cursor = page["cursor"]
    _, last = await ask(api, f"/api/usage/resources?service=grid&limit=1&cursor={cursor}")

    assert sorted(names) == ["farm", "ranch"]
    assert last == {"resources": [], "cursor": None}


@pytest.mark.parametrize(
    "query",
    [
        "start=yesterday",
        "start=2026-02-01&end=2026-01-01",
        "service=none",
        "since=1y",
        "resource=a:b",
        "step=week",
    ],
)
async def test_a_wrong_question_is_refused(api: Client, query: str) -> None:
    status, error = await ask(api, f"/api/usage?{query}")

    assert status == 400, error


@pytest.mark.parametrize(("account", "scopes", "expected"), [("ranch", VIEWER, 403), ("ops", OPERATOR, 200)])
async def test_no_account_can_push_what_the_herd_meters_itself(
    api: Client, now: int, account: str, scopes: frozenset[Scope], expected: int
) -> None:
    params = {"accountId": "ranch", "byteLength": 10**9, "numberOfObjects": 3}
    event = {"service": "artifacts", "action": "removeArtifacts", "params": params}
    origin = Origin(address="127.0.0.1", account=account, token="t", scopes=scopes)

    async with api.post("/api/metering/events", json=event, headers=origin_headers(origin)) as answer:
        assert answer.status == expected
