"""Events and listings over HTTP: through a front door that asks for tokens, signed by AWS' own signer."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from yarl import URL

import servers
from configs import make_config
from golden_usage import GOLDEN, HTTP_GOLDEN, STORY
from remuda.accounts.audit import Audit
from remuda.accounts.keys import FILE, AccessKeys
from remuda.accounts.model import digest_of
from remuda.accounts.tokens import Tokens
from remuda.base import clock
from remuda.cli import metering as cli
from remuda.cli.front_door import HerdAddress
from remuda.cli.rooms import ROOMS
from remuda.cli.tokens import create_token
from remuda.fleet.origin import Scope
from remuda.fleet.role import Life
from remuda.fleet.room import Surroundings
from remuda.gateway.role import Gateway
from remuda.keyspace.metering import OWNERS, POISON
from remuda.metering.owners import Owners
from remuda.metering.push import Metering
from remuda.metering.replay import Replay
from remuda.metering.spool import segments
from remuda.store import Store
from remuda.store.census import take_census
from remuda.web.api import Api
from waiting import eventually
from web_states import running, serving

SLOT = 1483251300000
RANGE = [SLOT, SLOT + 900_000 - 1]
PUT = {"bucket": "b", "newByteLength": 1024, "oldByteLength": None}


class Answer(NamedTuple):
    status: int
    body: Any
    text: str
    headers: Any


class Herd:
    """A front door that asks for tokens, with an api behind it."""

    def __init__(self, store: Store, url: str, data: Path) -> None:
        self.store = store
        self.url = url
        self._keys = AccessKeys(store, data / FILE)

    async def give(self, account: str, *scopes: Scope, lifetime: float | None = None) -> str:
        name = f"t{clock.monotonic()}"
        token, _ = await Tokens(self.store).create(name, account=account, scopes=scopes, lifetime=lifetime)
        return token

    def sign(
        self, token: str, method: str, path: str, body: bytes, *, secret: str = "", service: str = "s3"
    ) -> dict[str, str]:
        """The headers that AWS' signer makes for a request."""
        key_id, own_secret = self._keys.pair_of(digest_of(token))
        request = AWSRequest(method=method, url=self.url + path, data=body)
        SigV4Auth(Credentials(key_id, secret or own_secret), service, "us-east-1").add_auth(request)
        return dict(request.headers)

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        given = {"Content-Type": "application/json"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        async with (
            aiohttp.ClientSession() as client,
            client.request(
                method,
                URL(self.url + path, encoded=True),
                data=data,
                headers=given,
                skip_auto_headers=("User-Agent",),
            ) as response,
        ):
            text = await response.text()
            is_json = "json" in response.headers.get("Content-Type", "")
            return Answer(response.status, json.loads(text) if is_json else None, text, response.headers)

    async def push(self, token: str, events: Any) -> Answer:
        return await self.ask("POST", "/api/metering/events", events, Authorization=f"Bearer {token}")

    async def list_signed(self, token: str, level: str, body: Any, **options: str) -> Answer:
        path, data = f"/{level}?Action=ListMetrics", json.dumps(body).encode()
        return await self.ask("POST", path, data, **self.sign(token, "POST", path, data, **options))


@pytest.fixture
async def herd(store: Store, tmp_path: Path) -> AsyncIterator[Herd]:
    async with herd_on(store, tmp_path) as herd:
        yield herd


@asynccontextmanager
async def herd_on(store: Store, tmp_path: Path) -> AsyncIterator[Herd]:
    api = Api(Surroundings(store, make_config(data=tmp_path), ROOMS))
    gateway = Gateway(store, make_config(port=0, data=tmp_path, auth="on"))
    async with serving(api):
        await Life(store, [api])._announce()
        async with running(gateway):
            serve = asyncio.create_task(gateway.serve(), name="gateway")
            yield Herd(store, f"http://{gateway.address}", tmp_path)
            serve.cancel()
            await asyncio.gather(serve, return_exceptions=True)


# Listings

CHANGING = {"ok recent", "no end time"}
OURS = {"unknown resource", "bad uri"}
"""Paths that belong to the rest of the herd."""


async def test_every_recorded_request_is_answered_as_utapi_did(herd: Herd) -> None:
    token = await herd.give("ops", Scope.ADMIN)
    wrong = {}

    for recorded in HTTP_GOLDEN:
        name, asked = recorded["name"], recorded["request"]
        if name in OURS:
            continue
        given = asked.get("body")
        body = given.encode() if isinstance(given, str) else json.dumps(given).encode() if given else b""
        headers = {}
        if asked["signed"]:
            headers = herd.sign(token, asked["method"], asked["path"], body)
        elif name == "auth v2 header":
            headers = {"Authorization": "AWS key:signature"}
        elif name == "garbage AWS4 header":
            headers = {"Authorization": "AWS4-HMAC-SHA256 garbage"}
        answer = await herd.ask(asked["method"], asked["path"], body, **headers)
        expected = json.loads(recorded["body"])
        if name in CHANGING:
            for each in (*expected, *answer.body):
                each["timeRange"] = None
        is_same_text = name in CHANGING or answer.text == recorded["body"]
        if (answer.status, answer.body) != (recorded["status"], expected) or not is_same_text:
            wrong[name] = (answer.status, answer.text[:300], recorded["status"], recorded["body"][:300])
        assert answer.headers["Content-Type"] == "application/json"
        assert len(answer.headers["x-scal-request-id"]) == 20

    assert wrong == {}


async def test_the_story_is_listed_as_utapi_lists_it(herd: Herd) -> None:
    token, metering = await herd.give("ops", Scope.ADMIN), Metering(herd.store)
    for step in STORY["steps"]:
        await metering.push(step["action"], step["params"], timestamp=step["now"])

    for recorded in GOLDEN["listMetrics"]:
        body = {recorded["level"]: [recorded["resource"]], "timeRange": recorded["response"]["timeRange"]}
        answer = await herd.list_signed(token, recorded["level"], body)
        assert json.dumps(answer.body[0]) == json.dumps(recorded["response"])


async def test_a_signature_is_checked(herd: Herd, monkeypatch: pytest.MonkeyPatch) -> None:
    token = await herd.give("ops", Scope.ADMIN)
    body = {"service": ["s3"], "timeRange": RANGE}
    path, data = "/service?Action=ListMetrics", json.dumps(body).encode()
    good = herd.sign(token, "POST", path, data)

    assert (await herd.list_signed(token, "service", body)).status == 200
    assert (await herd.list_signed(token, "service", body, service="utapi")).status == 200
    forged = await herd.list_signed(token, "service", body, secret="x" * 40)
    changed = await herd.ask("POST", path, data.replace(b"s3", b"s4"), **good)
    elsewhere = await herd.ask("POST", path.replace("ListM", "ListRecentM"), data, **good)
    stranger = await herd.list_signed("rmd_" + "x" * 43, "service", body)
    real = clock.now
    monkeypatch.setattr(clock, "now", lambda: real() + 1000)
    late = await herd.ask("POST", path, data, **good)

    codes = [each.body["code"] for each in (forged, changed, elsewhere, stranger, late)]
    assert codes == [
        "SignatureDoesNotMatch",
        "SignatureDoesNotMatch",
        "SignatureDoesNotMatch",
        "InvalidAccessKeyId",
        "RequestTimeTooSkewed",
    ]


@pytest.mark.parametrize(
    ("signed", "sent"),
    [
        # AWS' signer and curl sign a query as it is sent, in order.
        ("x=a+b", "x=a+b"),
        ("x=a%2bb", "x=a%2bb"),
        ("x=/:=", "x=/:="),
        ("b=2&a=1", "b=2&a=1"),
        # Others sign it as AWS encodes it; S3 and Utapi read a plus as a space.
        ("x=a%20b", "x=a+b"),
        ("x=a%2Bb", "x=a%2bb"),
        ("x=%2F%3A", "x=/:"),
    ],
)
async def test_a_query_is_signed_as_it_is_sent_or_as_aws_encodes_it(
    herd: Herd, signed: str, sent: str
) -> None:
    token = await herd.give("ops", Scope.ADMIN)
    path, data = "/buckets?Action=ListMetrics&", json.dumps({"buckets": ["b"], "timeRange": RANGE}).encode()
    headers = herd.sign(token, "POST", path + signed, data)

    answer = await herd.ask("POST", path + sent, data, **headers)
    other = await herd.ask("POST", path + sent + "c", data, **headers)

    assert answer.status == 200, answer.text
    assert (other.status, other.body["code"]) == (403, "SignatureDoesNotMatch")


async def test_an_access_key_ends_with_its_token(herd: Herd) -> None:
    token = await herd.give("own", Scope.USAGE, lifetime=-1.0)

    answer = await herd.list_signed(token, "accounts", {"accounts": ["own"], "timeRange": RANGE})

    assert (answer.status, answer.body["code"]) == (403, "InvalidAccessKeyId")


@pytest.mark.parametrize("way", ["signed", "token"])
async def test_an_account_sees_its_own_resources_only(herd: Herd, way: str) -> None:
    token = await herd.give("own", Scope.USAGE)
    metering = Metering(herd.store)
    for bucket, account in (("mine", "own"), ("theirs", "other")):
        params = {**PUT, "bucket": bucket, "accountId": account, "userId": f"user-of-{account}"}
        await metering.push("putObject", params, timestamp=SLOT)

    async def listed(level: str, *names: str) -> Any:
        body = {level: list(names), "timeRange": RANGE}
        if way == "signed":
            answer = await herd.list_signed(token, level, body)
        else:
            path = f"/{level}?Action=ListMetrics"
            answer = await herd.ask("POST", path, body, Authorization=f"Bearer {token}")
        if answer.status != 200:
            return answer.body["code"]
        return [
            (each.get("bucketName") or each.get("accountId") or each.get("userId")) for each in answer.body
        ]

    assert await listed("buckets", "mine", "theirs", "unknown") == ["mine"]
    assert await listed("buckets", "theirs") == "AccessDenied"
    assert await listed("accounts", "own", "other") == ["own"]
    assert await listed("users", "user-of-own", "user-of-other") == ["user-of-own"]
    assert await listed("service", "s3") == "AccessDenied"
    assert await listed("location", "here") == "AccessDenied"


async def test_a_token_without_the_scope_sees_nothing(herd: Herd) -> None:
    token = await herd.give("own", Scope.USE)
    body = {"accounts": ["own"], "timeRange": RANGE}
    path = "/accounts?Action=ListMetrics"

    shown = await herd.ask("POST", path, body, Authorization=f"Bearer {token}")
    signed = await herd.list_signed(token, "accounts", body)

    assert (shown.body["code"], signed.body["code"]) == ("AccessDenied", "AccessDenied")


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
async def test_methods_that_utapi_does_not_have_are_answered_as_it_does(herd: Herd, method: str) -> None:
    answer = await herd.ask(method, "/buckets?Action=ListMetrics", b"")

    assert (answer.status, answer.body["code"]) == (501, "NotImplemented")


async def test_whole_numbers_may_be_written_as_other_languages_do(herd: Herd) -> None:
    token = await herd.give("ops", Scope.ADMIN)
    ask = f'{{"buckets": ["b"], "timeRange": [{SLOT}.0, {SLOT + 899_999}]}}'.encode()

    answer = await herd.ask("POST", "/buckets?Action=ListMetrics", ask, Authorization=f"Bearer {token}")

    assert answer.status == 200
    assert answer.text.startswith(f'[{{"timeRange":[{SLOT},{SLOT + 899_999}]')


# Events


async def test_events_are_counted_once_whichever_way_they_come(herd: Herd) -> None:
    token = await herd.give("ops", Scope.ADMIN)
    event = {"id": "e1", "action": "putObject", "timestamp": SLOT, "params": {**PUT, "accountId": "a"}}

    one = await herd.push(token, event)
    many = await herd.push(token, [event, {**event, "id": "e2"}, {**event, "id": "e2"}])

    assert (one.status, one.body) == (200, {"accepted": 1, "duplicates": 0})
    assert (many.status, many.body) == (200, {"accepted": 1, "duplicates": 2})
    assert await herd.store.send("GET", f"s3:buckets:{SLOT}:b:PutObject") == "2"


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (
            {"id": "bad", "action": "putObject", "params": {"bucket": "b"}},
            "Event 1 ('bad'): params.newByteLength",
        ),
        ({"action": "nothing"}, "Event 1: action is 'nothing'"),
        ({"action": "headBucket", "service": "tape"}, "Event 1: service is 'tape'"),
        ({"action": "headBucket", "timestamp": 12}, "Event 1: timestamp is 12"),
        ({"action": "headBucket", "id": ""}, "Event 1 (''): id is ''"),
        ({"action": 7}, "Event 1: Expected `str`, got `int` - at `action`"),
        ({"id": "bad"}, "Event 1 ('bad'): Object missing required field `action`"),
        ({"action": "headBucket", "id": 5}, "Event 1: Expected `str | null`, got `int` - at `id`"),
        ({"action": "headBucket", "id": "bad", "timestamp": "now"}, "Event 1 ('bad'): Expected `int | null`"),
        ({"action": "headBucket", "id": "bad", "params": []}, "got `array` - at `params`"),
        ([], "Event 1: Expected `object`, got `array`"),
    ],
)
async def test_a_wrong_event_is_named_and_none_of_its_list_is_counted(
    herd: Herd, event: Any, told: str
) -> None:
    token = await herd.give("ops", Scope.ADMIN)

    answer = await herd.push(token, [{"action": "headBucket", "params": {"bucket": "b"}}, event])

    assert answer.status == 400
    assert told in answer.body["error"]["message"]
    assert not await herd.store.send("KEYS", "s3:*")


async def test_an_account_pushes_for_itself_only(herd: Herd) -> None:
    own, other = await herd.give("own", Scope.USAGE), await herd.give("other", Scope.USAGE)
    user = await herd.give("own", Scope.USE)
    event = {"id": "e", "action": "putObject", "timestamp": SLOT, "params": PUT}

    mine = await herd.push(own, event)
    same_id = await herd.push(other, {**event, "params": {**PUT, "bucket": "c"}})
    for_another = await herd.push(own, {**event, "params": {**PUT, "accountId": "other"}})
    to_another = await herd.push(other, {**event, "id": "f"})
    unscoped = await herd.push(user, event)

    assert (mine.body, same_id.body) == ({"accepted": 1, "duplicates": 0},) * 2
    assert [for_another.status, to_another.status, unscoped.status] == [403, 403, 403]
    assert await herd.store.send("GET", f"s3:accounts:{SLOT}:own:PutObject") == "1"
    assert await herd.store.send("GET", f"s3:accounts:{SLOT}:other:PutObject") == "1"


async def test_events_are_taken_while_redis_is_away(server: servers.Server, tmp_path: Path) -> None:
    """What belongs to another account is found before it is counted."""
    own_bucket = {"action": "putObject", "timestamp": SLOT, "params": PUT}
    other_bucket = {**own_bucket, "params": {**PUT, "bucket": "c"}}
    async with Store(server.url, timeout=servers.PATIENCE) as store, herd_on(store, tmp_path) as herd:
        own, other = await herd.give("own", Scope.USAGE), await herd.give("other", Scope.USAGE)
        operator = await herd.give("ops", Scope.ADMIN)
        for token, event in ((own, own_bucket), (other, other_bucket), (operator, own_bucket)):
            assert (await herd.push(token, event)).status == 200
        server.pause()
        await eventually(lambda: not store.is_connected)

        answers = [
            await herd.push(own, [{**own_bucket, "id": "1"}, {**own_bucket, "id": "1"}]),
            await herd.push(other, {**own_bucket, "id": "2"}),
            await herd.push(operator, {**own_bucket, "id": "3", "params": {**PUT, "accountId": "own"}}),
        ]
        server.resume()
        await eventually(lambda: store.is_connected, deadline=30)

        async def is_replayed() -> bool:
            await Replay(store, Metering(store), tmp_path / "spool").replay_spool()
            return not segments(tmp_path / "spool")

        await eventually(is_replayed)
        assert [(answer.status, answer.body) for answer in answers] == [
            (200, {"accepted": 1, "duplicates": 1}),
            *[(200, {"accepted": 1, "duplicates": 0})] * 2,
        ]
        assert await store.send("GET", f"s3:buckets:{SLOT}:b:PutObject") == "4"
        (poison,) = await store.lrange(POISON())
        assert json.loads(poison)["reason"] == (
            "'b' of the level buckets belongs to the account 'own'; an operator can assign it to another"
        )
        assert json.loads(json.loads(poison)["element"])["reqUid"] == "2"


# Operators


async def test_operators_assign_buckets_before_and_after_their_first_use(herd: Herd) -> None:
    own, other = await herd.give("own", Scope.USAGE), await herd.give("other", Scope.USAGE)
    bearer = f"Bearer {await herd.give('ops', Scope.ADMIN)}"
    event = {"action": "putObject", "timestamp": SLOT, "params": PUT}

    async def assign(account: str) -> Any:
        body = {"resource": "b", "account": account}
        return (await herd.ask("PUT", "/api/metering/owners", body, Authorization=bearer)).body

    reserved = await assign("own")
    refused = await herd.push(other, event)
    accepted = await herd.push(own, event)
    given = await assign("other")
    refused_later = await herd.push(own, event)
    listed = await herd.list_signed(other, "buckets", {"buckets": ["b"], "timeRange": RANGE})

    place = {"service": "s3", "level": "buckets", "resource": "b"}
    assert reserved == {**place, "account": "own", "assigned": True, "before": None}
    assert given == {**place, "account": "other", "assigned": True, "before": "own"}
    assert [refused.status, accepted.status, refused_later.status] == [403, 200, 403]
    assert "'b' of the level buckets belongs to the account 'own'" in refused.text
    assert "'b' of the level buckets belongs to the account 'other'" in refused_later.text
    assert listed.body[0]["bucketName"] == "b"
    assert await take_census(herd.store) == []
    assert [
        (each.action, each.subject, each.details) for each in await Audit(herd.store).newest(limit=9)
    ] == [
        ("owner.assign", "s3/buckets/b", {"account": "other", "before": "own"}),
        ("owner.assign", "s3/buckets/b", {"account": "own", "before": None}),
    ]


async def test_a_bucket_that_is_released_belongs_to_the_account_that_uses_it_next(herd: Herd) -> None:
    own, other = await herd.give("own", Scope.USAGE), await herd.give("other", Scope.USAGE)
    bearer = f"Bearer {await herd.give('ops', Scope.ADMIN)}"
    event = {"action": "putObject", "timestamp": SLOT, "params": PUT}
    owner_of_b = ("/api/metering/owners?resource=b", None)
    await herd.push(own, event)
    used = await herd.ask("GET", *owner_of_b, Authorization=bearer)

    released = await herd.ask("DELETE", *owner_of_b, Authorization=bearer)
    free = await herd.ask("GET", *owner_of_b, Authorization=bearer)
    await herd.push(other, {**event, "timestamp": SLOT + 900_000})
    refused = await herd.push(own, event)

    assert [(each["account"], each["assigned"]) for each in used.body["owners"]] == [("own", False)]
    assert (released.body["before"], released.body["account"]) == ("own", None)
    assert [each["account"] for each in free.body["owners"]] == [None]
    assert "belongs to the account 'other'" in refused.text


async def test_an_assigned_bucket_stays_with_its_account_when_its_usage_is_forgotten(herd: Herd) -> None:
    own, other = await herd.give("own", Scope.USAGE), await herd.give("other", Scope.USAGE)
    await Owners(herd.store, Metering(herd.store).services).assign("s3", "buckets", "b", "own")
    await herd.push(own, {"action": "putObject", "timestamp": SLOT, "params": PUT})

    await herd.store.hdel(OWNERS("s3", "buckets"), "b")  # As what forgets it does.

    assert (await herd.push(other, {"action": "putObject", "params": PUT})).status == 403


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"resource": "a/b", "account": "own"}, "resource is 'a/b'"),
        ({"resource": "b", "account": "Not One"}, "'Not One' cannot be the name of an account"),
        ({"resource": "b", "account": "own", "service": "s4"}, "service is 's4'"),
        ({"resource": "b", "account": "own", "level": "location"}, "level"),
    ],
)
async def test_what_cannot_be_assigned_is_refused(herd: Herd, body: Any, problem: str) -> None:
    bearer = f"Bearer {await herd.give('ops', Scope.ADMIN)}"

    refused = await herd.ask("PUT", "/api/metering/owners", body, Authorization=bearer)

    assert refused.status == 400
    assert problem in refused.text


async def test_only_operators_assign_buckets(herd: Herd) -> None:
    bearer = f"Bearer {await herd.give('own', Scope.USAGE)}"

    refused = await herd.ask(
        "PUT", "/api/metering/owners", {"resource": "b", "account": "own"}, Authorization=bearer
    )

    assert refused.status == 403


async def test_owners_are_assigned_on_the_command_line(
    herd: Herd, capsys: pytest.CaptureFixture[str]
) -> None:
    address = HerdAddress(herd.url, await herd.give("ops", Scope.ADMIN))

    await asyncio.to_thread(cli.assign_owner, address, "s3/buckets/photos", "web")
    await asyncio.to_thread(cli.show_owners, address, None)
    await asyncio.to_thread(cli.release_owner, address, "s3/buckets/photos")
    await asyncio.to_thread(cli.show_owners, address, None)

    first, _, row, released, none = capsys.readouterr().out.splitlines()
    assert first == "s3/buckets/photos belongs to web (before: no account)"
    assert row.split() == ["s3", "buckets", "photos", "web", "yes"]
    assert released == "s3/buckets/photos belongs to the account that uses it next (before: web)"
    assert none.startswith("nothing is assigned")


async def test_drift_is_found_and_corrected_with_a_trail(herd: Herd) -> None:
    token, metering = await herd.give("ops", Scope.ADMIN), Metering(herd.store)
    bearer = f"Bearer {token}"
    await metering.push("putObject", {**PUT, "accountId": "a"})
    assert (await herd.ask("GET", "/api/metering/drift", Authorization=bearer)).body == {"drift": []}
    await herd.store.send("INCRBY", "s3:buckets:b:storageUtilized:counter", 50)

    found = await herd.ask("GET", "/api/metering/drift", Authorization=bearer)
    fixed = await herd.ask("POST", "/api/metering/reconcile", {}, Authorization=bearer)
    chosen = {"level": "accounts", "resource": "a", "metric": "numberOfObjects", "value": 7}
    set_to = await herd.ask("POST", "/api/metering/reconcile", chosen, Authorization=bearer)
    trail = await herd.ask("GET", "/api/metering/corrections", Authorization=bearer)

    (drift,) = found.body["drift"]
    assert (drift["resource"], drift["counter"], drift["state"]) == ("b", 1074, 1024)
    assert [each["value"] for each in fixed.body["corrections"]] == [1074]
    assert [each["value"] for each in set_to.body["corrections"]] == [7]
    assert [(each["resource"], each["value"]) for each in trail.body["corrections"]] == [
        ("a", 7),
        ("b", 1074),
    ]
    assert (await herd.ask("GET", "/api/metering/drift", Authorization=bearer)).body == {"drift": []}
    assert await herd.store.send("GET", "s3:accounts:a:numberOfObjects:counter") == "7"
    audit = (await herd.ask("GET", "/api/audit", Authorization=bearer)).body["entries"]
    assert [each["action"] for each in audit] == ["metering.correct"] * 2


async def test_the_command_line_checks_and_corrects(herd: Herd, capsys: pytest.CaptureFixture[str]) -> None:
    token = await herd.give("ops", Scope.ADMIN)
    address = HerdAddress.parse(herd.url, token=token)
    await Metering(herd.store).push("putObject", PUT)
    await herd.store.send("INCRBY", "s3:buckets:b:storageUtilized:counter", 50)

    statuses = [await asyncio.to_thread(cli.check_counters, address)]
    await asyncio.to_thread(cli.reconcile, address, None, None)
    await asyncio.to_thread(cli.reconcile, address, "s3/service/s3/numberOfObjects", 9)
    statuses.append(await asyncio.to_thread(cli.check_counters, address))
    await asyncio.to_thread(cli.show_corrections, address)

    assert statuses == [1, 0]
    printed = capsys.readouterr().out
    assert "s3/buckets/b/storageUtilized: 1074 (the counter was 1074, the state 1024)" in printed
    assert "s3/service/s3/numberOfObjects: 9 (the counter was 1, the state 1)" in printed


async def test_an_access_key_is_made_with_its_token(herd: Herd, capsys: pytest.CaptureFixture[str]) -> None:
    address = HerdAddress.parse(herd.url, token=await herd.give("ops", Scope.ADMIN))

    await asyncio.to_thread(
        create_token, address, "billing", account="own", scopes=["usage"], expires=None, access_key=True
    )

    token, key_id, secret = capsys.readouterr().out.split()
    assert (key_id, secret) == herd._keys.pair_of(digest_of(token))
    body = {"accounts": ["own"], "timeRange": RANGE}
    assert (await herd.list_signed(token, "accounts", body, secret=secret)).status == 200


async def test_poison_is_shown_and_dropped(herd: Herd) -> None:
    token = await herd.give("ops", Scope.ADMIN)
    poison = {"at": "2026-01-01T00:00:00.000Z", "reason": "r", "source": "s", "element": "{}"}
    await herd.store.lpush(POISON(), json.dumps(poison))

    shown = await herd.ask("GET", "/api/metering/poison", Authorization=f"Bearer {token}")
    dropped = await herd.ask("DELETE", "/api/metering/poison", Authorization=f"Bearer {token}")

    assert shown.body == dropped.body == {"poison": [poison]}
    assert not await herd.store.exists(POISON())


async def test_the_audit_log_says_what_became_of_a_quota(herd: Herd) -> None:
    admin = {"Authorization": f"Bearer {await herd.give('ops', Scope.ADMIN)}"}
    changes: list[Any] = [
        {"grid.browserSeconds": {"hard": 10, "soft": 8, "period": "day"}},
        {"grid.browserSeconds": {"hard": None}},
        {"artifacts.storageUtilized": {"hard": 5}},
        {"grid.browserSeconds": {"soft": None}, "grid.commands": None, "subject": None},
    ]

    for quotas in changes:
        assert (await herd.ask("PATCH", "/api/quotas/ranch", {"quotas": quotas}, **admin)).status == 200

    entries = (await herd.ask("GET", "/api/audit", **admin)).body["entries"]
    assert [each["details"] for each in reversed(entries) if each["action"] == "quota.set"] == [
        {"grid.browserSeconds": "10/day, soft 8"},
        {"grid.browserSeconds": "none/day, soft 8"},
        {"artifacts.storageUtilized": "5, soft none"},
        {"grid.browserSeconds": "removed", "grid.commands": "removed", "subject": "removed"},
    ]
